"""A rolling upgrade under load breaks no promise, and its judge finds a request that an upgrade has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.history import Attempt, History, Outcome
from tests.campaign.judging.judging import judge_history
from tests.campaign.listening.records import Session
from tests.upgrade.judging import Exchange, is_judged_here, judge_requests, judge_sockets
from tests.upgrade.rolling import run_upgrade


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


API, OTHER_API = "http://127.0.0.1:1", "http://127.0.0.1:2"
OF_RELEASE = Exchange("api", API, of_release=True, began=1.0, ended=3.0)
OF_PRESENT = Exchange("api", API, of_release=False, began=11.0, ended=13.0)
CUT_OFF = f"the connection to {API} was lost before its answer came; the request may have been done"


@pytest.mark.parametrize(
    ("outcome", "code", "at", "url", "is_fine"),
    [
        (Outcome.DONE, "ok", 20.0, API, True),
        (Outcome.REFUSED, "invalid_state", 20.0, API, True),
        (Outcome.CONFLICT, "operation_conflict", 20.0, API, True),
        (Outcome.NOT_DONE, "overloaded", 20.0, API, True),
        (Outcome.NOT_DONE, "rate_limited", 20.0, API, True),
        (Outcome.NOT_DONE, "internal", 2.0, API, False),
        (Outcome.NOT_DONE, "invalid", 2.0, API, False),
        # A connection is refused while the process is exchanged, and neither before nor at the other one.
        (Outcome.NOT_DONE, "unreachable", 2.0, API, True),
        (Outcome.NOT_DONE, "unreachable", 12.0, API, True),
        (Outcome.NOT_DONE, "unreachable", 20.0, API, False),
        (Outcome.NOT_DONE, "unreachable", 2.0, OTHER_API, False),
        # A request that a process had is answered, unless it is the release that was ended.
        (Outcome.UNKNOWN, "outcome_unknown", 2.0, API, True),
        (Outcome.UNKNOWN, "outcome_unknown", 12.0, API, False),
        (Outcome.UNKNOWN, "outcome_unknown", 20.0, API, False),
        (Outcome.UNKNOWN, "client_timeout", 2.0, API, True),
        (Outcome.UNKNOWN, "client_timeout", 12.0, API, False),
        (Outcome.UNKNOWN, "client_timeout", 20.0, API, False),
    ],
)
def test_a_request_that_an_upgrade_has_failed_is_found(
    outcome: Outcome, code: str, at: float, url: str, is_fine: bool
) -> None:
    attempt = Attempt("key", "create", "renter 0", "", at - 0.1, at, outcome, code, CUT_OFF, url=url)
    assert (list(judge_requests([attempt], [OF_RELEASE, OF_PRESENT])) == []) is is_fine


@pytest.mark.parametrize(("at", "is_fine"), [(2.0, True), (12.0, False), (20.0, False)])
def test_a_handshake_of_a_socket_is_ended_by_the_release_alone(at: float, is_fine: bool) -> None:
    session = Session("socket 1", None, 0, at - 0.1, refused="http_500", ended=at, url=API)
    assert (list(judge_sockets([session], [OF_RELEASE, OF_PRESENT])) == []) is is_fine
    history = History(1, sessions=[session])
    history.count_read("subscribe http_500")
    assert [one for one in judge_history(history) if "http_500" in one.sentence and not is_judged_here(one)] == []
