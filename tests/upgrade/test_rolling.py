"""A rolling upgrade under load breaks no promise, and its judge finds a request that an upgrade has failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaign.history import Attempt, Outcome
from tests.upgrade.rolling import judge_requests, run_upgrade


# Takes five minutes. tests/upgrade/test_upgrade.py, as long as this one, upgrades the schema under one process of the release.
@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_rolling_upgrade_and_a_step_back(server_directory: Path) -> None:
    report, history = run_upgrade(server_directory / "upgrade", 30, seed=1, agents=3)
    shown = "\n".join(report.lines())
    assert report.kept, shown
    assert report.allocations.get("released", 0) > 5, shown
    kinds = [injury.kind for injury in history.injuries]
    assert kinds.count("migrate") == 1
    assert kinds.count("exchange") == 3 * len({i.target for i in history.injuries if i.kind == "exchange"}) > 0


@pytest.mark.parametrize(
    ("outcome", "code", "is_fine"),
    [
        (Outcome.DONE, "ok", True),
        (Outcome.REFUSED, "invalid_state", True),
        (Outcome.CONFLICT, "operation_conflict", True),
        (Outcome.NOT_DONE, "unreachable", True),
        (Outcome.UNKNOWN, "client_timeout", True),
        (Outcome.NOT_DONE, "overloaded", True),
        (Outcome.NOT_DONE, "internal", False),
        (Outcome.NOT_DONE, "invalid", False),
        (Outcome.UNKNOWN, "outcome_unknown", False),
    ],
)
def test_a_request_that_an_upgrade_has_failed_is_found(outcome: Outcome, code: str, is_fine: bool) -> None:
    attempt = Attempt("key", "create", "renter 0", "", 1.0, 2.0, outcome, code)
    assert bool(judge_requests([attempt])) is not is_fine
    cut_off = replace(attempt, answer="the connection to http://127.0.0.1:1 was lost before its answer came")
    assert bool(judge_requests([cut_off])) is not (is_fine or outcome is Outcome.UNKNOWN)
