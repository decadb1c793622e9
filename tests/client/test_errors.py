"""Every problem code of the server has an error class with the same meaning in the client, and no class is unused."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from datetime import datetime

import pytest

import orchestrator
from berth import client as berth
from berth.client.problems import BY_CODE, error_from_problem
from orchestrator.problems import Problem
from orchestrator.reservations.refusals import ResourceBusy

OWN = {
    "approval_requested",
    "insecure_address",
    "log_gap",
    "event_stubbed",
    "position_lost",
    "unreachable",
    "unreadable_answer",
    "wait_timeout",
    "state_unreachable",
    "webhook_unverified",
}
"""Codes that only the client raises."""
KEPT_THOUGH_NO_BUSINESS = {"operation_conflict", "operation_fenced", "secret_not_shown_again"}
"""They follow from what is kept under the key, so a repetition gets them again, as what is kept itself."""


def _below(kind: type[Problem]) -> Iterator[type[Problem]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def problems() -> dict[str, type[Problem]]:
    """Every problem of the server, by its code."""
    for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    every: list[type[Problem]] = [Problem, *_below(Problem)]
    # The first of two with one code: the other is a kind of it.
    return {kind.code: kind for kind in reversed(every) if kind.__module__.startswith("orchestrator.")}


PROBLEMS = problems()


@pytest.mark.parametrize("code", sorted(PROBLEMS))
def test_every_problem_code_has_an_error_class_with_the_same_meaning(code: str) -> None:
    problem = PROBLEMS[code]
    named = BY_CODE.get(code)
    assert named is not None, f"{code} has no name in berth.client.errors"
    assert named.codes == (code,)
    assert getattr(berth, named.__name__) is named
    assert named.kept == (problem.business or code in KEPT_THOUGH_NO_BUSINESS)
    error = error_from_problem(problem.status, {"code": code, "detail": "d", "outcome": problem.outcome.value}, None)
    assert type(error) is named
    assert (error.code, error.status, error.outcome) == (code, problem.status, problem.outcome.value)


def test_there_is_no_error_class_for_a_code_that_the_server_never_sends() -> None:
    assert set(BY_CODE) - OWN == set(PROBLEMS)
    assert {kind for kind in vars(berth).values() if isinstance(kind, type) and issubclass(kind, berth.BerthError)} == {
        *BY_CODE.values(), berth.BerthError, berth.Refused,
    }  # fmt: skip


def test_a_code_of_a_newer_server_settles_nothing() -> None:
    error = error_from_problem(404, {"code": "moon_not_found", "outcome": "not_done"}, None)
    assert isinstance(error, berth.NotFound)
    assert not error.settles
    assert error_from_problem(404, {"code": "not_found"}, None).settles


def test_a_busy_resource_says_whether_it_waits_for_cleanup_and_since_when() -> None:
    since = "2026-01-01T00:00:00.000000Z"
    waiting = error_from_problem(409, ResourceBusy.in_window([], since).document(), None)
    assert isinstance(waiting, berth.ResourceBusy)
    assert (waiting.conflicts, waiting.waits_for, waiting.since) == ([], "cleanup", datetime.fromisoformat(since))
    taken = error_from_problem(409, ResourceBusy.in_window(["allocations/1"]).document(), None)
    assert isinstance(taken, berth.ResourceBusy)
    assert (taken.conflicts, taken.waits_for, taken.since) == (["allocations/1"], None, None)
