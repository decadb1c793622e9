"""Which standby may serve, by what it and the primary have."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.process.schema_window import SCHEMA_REVISION
from orchestrator.database.replicas.rules import (
    VERIFIED_SECONDS_MAX,
    Cause,
    Fit,
    PrimaryFacts,
    StandbyFacts,
    Unfit,
    judge_standby,
)

EVENT, OTHER = UUID(int=1), UUID(int=2)
PRIMARY = PrimaryFacts(
    asked=100.0, answered=100.01, system="7", leader_id="7-1", accepted_leader_id="7-1", version=50, written=9_000,
    clock=1_000_100.0,
)  # fmt: skip
STANDBY = StandbyFacts(
    asked=100.02, answered=100.03, server="7 b", in_recovery=True, system="7", revision=SCHEMA_REVISION,
    oldest_process=SCHEMA_REVISION, restoring=False, leader_id="7-1", version=50, event_id=EVENT, replayed=9_000,
    clock=1_000_100.02,
)  # fmt: skip


def judged(standby: StandbyFacts = STANDBY, primary: PrimaryFacts = PRIMARY, event_id: UUID | None = EVENT) -> object:
    """The cause, or True for a standby that may serve."""
    verdict = judge_standby([primary], standby, event_id, 10.0)
    return verdict.cause if isinstance(verdict, Unfit) else isinstance(verdict, Fit)


@pytest.mark.parametrize(
    ("members", "cause"),
    [
        ({"in_recovery": False}, Cause.NOT_A_STANDBY),
        ({"system": "8"}, Cause.OTHER_INSTALLATION),
        ({"event_id": OTHER}, Cause.OTHER_INSTALLATION),
        ({"event_id": None}, Cause.OTHER_INSTALLATION),
        ({"leader_id": "7-2"}, Cause.OTHER_LEADER),
        ({"revision": "0001"}, Cause.SCHEMA),
        ({"revision": None}, Cause.SCHEMA),
        ({"oldest_process": "9999"}, Cause.SCHEMA),
        ({"restoring": True}, Cause.RESTORING),
        ({"clock": 1_000_101.2}, Cause.CLOCK),
        ({"clock": 1_000_098.8}, Cause.CLOCK),
        ({"replayed": 8_999}, Cause.LAGGING),
        ({"version": 49, "event_id": EVENT}, Cause.LAGGING),
    ],
)
def test_each_difference_has_its_cause(members: dict[str, object], cause: Cause) -> None:
    assert judged() is True
    assert judged(replace(STANDBY, **members)) is cause  # type: ignore[arg-type]


def test_a_version_that_the_primary_does_not_show_yet_is_no_other_history() -> None:
    ahead = replace(STANDBY, version=51, event_id=OTHER)
    assert judged(ahead, event_id=None) is Cause.AHEAD
    assert judged(ahead, event_id=EVENT) is Cause.OTHER_INSTALLATION
    assert judged(ahead, event_id=OTHER) is True, "it was acknowledged since the primary was asked"
    assert judged(replace(ahead, system="8"), event_id=None) is Cause.OTHER_INSTALLATION


def test_no_standby_serves_before_the_leader_is_accepted() -> None:
    promoted = replace(PRIMARY, leader_id="7-2")
    assert judged(primary=promoted) is Cause.OTHER_LEADER
    assert judged(replace(STANDBY, leader_id="7-2"), promoted) is Cause.OTHER_LEADER
    assert judged(replace(STANDBY, leader_id="7-2"), replace(promoted, accepted_leader_id="7-2")) is True


def test_an_empty_log_has_no_event_to_compare() -> None:
    empty = replace(STANDBY, version=0, event_id=None)
    assert judged(empty, replace(PRIMARY, version=0), None) is True


@given(
    written=st.lists(st.integers(0, 20), min_size=1, max_size=20).map(sorted),
    has=st.integers(0, 20),
    lag_seconds_max=st.floats(3, 20),
)
def test_a_fit_standby_has_what_was_committed_before_the_bound(
    written: list[int], has: int, lag_seconds_max: float
) -> None:
    """Until the end of its fitness it has everything that the primary had had written so long before."""
    history = [
        replace(PRIMARY, asked=float(n), answered=n + 0.01, written=position, version=0, clock=1_000_000.0 + n)
        for n, position in enumerate(written)
    ]
    now = history[-1].answered
    standby = replace(STANDBY, asked=now, answered=now + 0.01, replayed=has, version=0, clock=1_000_000.0 + now)
    verdict = judge_standby(history, standby, EVENT, lag_seconds_max)
    had = [facts.asked for facts in history if facts.written <= has]
    if isinstance(verdict, Fit):
        assert verdict.until <= max(had) + lag_seconds_max
        assert verdict.until <= history[-1].asked + VERIFIED_SECONDS_MAX
        assert verdict.lag_seconds >= now - max(had) - 1e-9
    else:
        assert verdict == Unfit(Cause.LAGGING)
        assert not had or max(had) + lag_seconds_max <= standby.answered
