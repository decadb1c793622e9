"""A recovery is from a fault's end to the first allocation after it, and other faults' time is not held against it."""

from __future__ import annotations

import math
import uuid

import pytest

from tests.campaign.faults.recovering import Recovery, by_class, quantile, recoveries
from tests.campaign.history import Attempt, History, Injury, Outcome, Sight


def created(history: History, at: float, active_at: float | None, outcome: Outcome = Outcome.DONE) -> None:
    """A create that began then, and a read that showed its allocation active."""
    allocation_id = uuid.uuid4()
    history.attempts.append(
        Attempt(f"key {at}", "create", "client", "content", at, at + 0.1, outcome, "ok", "", allocation_id)
    )
    if active_at is not None:
        history.sights.append(Sight("client", allocation_id, active_at - 0.1, active_at, "active", 3))


def hurt(history: History, began: float, ended: float | None, target: str = "worker", kind: str = "kill") -> None:
    history.injuries.append(Injury(kind, target, began, began, ended))


def test_only_a_create_after_the_end_counts() -> None:
    history = History(seed=0)
    hurt(history, 10, 12)
    created(history, 11, 13)
    created(history, 12.5, None, Outcome.UNKNOWN)
    created(history, 13, 16)
    created(history, 14, 15.5)
    (recovery,) = recoveries(history)
    assert (recovery.fault, recovery.target) == ("kill process", "worker")
    assert recovery.seconds == pytest.approx(3.5)
    assert recovery.undisturbed_seconds == pytest.approx(3.5)
    assert not recovery.late


def test_the_time_of_other_faults_is_left_out_once() -> None:
    history = History(seed=0)
    hurt(history, 10, 12)
    hurt(history, 11, 15, "postgres", "pause")
    hurt(history, 14, 18, "nats", "pause")
    hurt(history, 30, None, "api")
    created(history, 19, 42)
    first = recoveries(history)[0]
    assert first.seconds == 30
    # 12 to 18, and 30 to 42.
    assert first.undisturbed_seconds == pytest.approx(12)
    assert [recovery.fault for recovery in recoveries(history)] == ["kill process", "pause PostgreSQL", "pause NATS"]


@pytest.mark.parametrize(
    ("active_at", "last_create", "late"), [(31.9, 40, False), (32.5, 40, True), (None, 31, False), (None, 33, True)]
)
def test_late_is_over_the_budget_or_nothing_for_as_long(
    active_at: float | None, last_create: float, late: bool
) -> None:
    history = History(seed=0)
    hurt(history, 10, 12)
    created(history, 12.5, active_at)
    created(history, last_create, None, Outcome.NOT_DONE)
    (recovery,) = recoveries(history)
    assert recovery.budget_seconds == 20
    assert recovery.late is late


def test_another_disturbance_has_no_budget() -> None:
    history = History(seed=0)
    hurt(history, 10, 12, kind="exchange")
    created(history, 500, 900)
    assert recoveries(history)[0].budget_seconds == math.inf


def test_quantiles_are_values_that_occurred() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [quantile(values, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert quantile([7.0], 0.5) == quantile([7.0], 0.99) == 7.0


def test_each_class_has_a_line() -> None:
    found = [
        Recovery("kill process", "api", 3.0, 2.0, 60.0, 20.0),
        Recovery("kill process", "api", 30.0, 25.0, 60.0, 20.0),
        Recovery("cut link to NATS", "relay > nats", None, None, 1.0, 30.0),
    ]
    assert by_class(found) == [
        "cut link to NATS: 1, not measured, budget 30 s",
        "kill process: 2, p50 2.0 s, p99 25.0 s, max 25.0 s, budget 20 s, LATE 1",
    ]
