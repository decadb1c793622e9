"""When a balance is low, used up, and looked at again: the pure judgement."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.billing.rules import LOOK_SECONDS_MAX, RELEASING_SECONDS, Standing, judge, judged

NOW = datetime(2026, 5, 1, tzinfo=UTC)
WELL = Standing(
    tenant_id=uuid.UUID(int=1), prepaid=True, settled=1_000, accruing=100, rate=10, running=1, low_threshold=500,
    low_told_at=None, depleted_at=None, at=NOW,
)  # fmt: skip


def test_well_above_it_is_looked_at_when_it_may_have_come_to_the_threshold() -> None:
    found = judge(WELL)
    assert (found.low, found.depleted, found.tell_low, found.tell_depleted) == (False, False, False, False)
    assert found.look_seconds == 39.95, "half a unit sooner: an interval's amount is rounded"
    assert WELL.runs_out_at == NOW + timedelta(seconds=90)


@pytest.mark.parametrize(
    ("accruing", "low", "depleted", "look_seconds"),
    [
        (500, False, False, 0), (501, True, False, 49.85), (999, True, False, 0.05), (1_000, True, True, RELEASING_SECONDS),
        (1_001, True, True, RELEASING_SECONDS),
    ],
)  # fmt: skip
def test_the_edges(accruing: int, low: bool, depleted: bool, look_seconds: float) -> None:
    found = judge(replace(WELL, accruing=accruing))
    assert (found.low, found.depleted, found.tell_low, found.tell_depleted) == (low, depleted, low, depleted)
    assert found.look_seconds == pytest.approx(look_seconds)


def test_each_is_told_once_until_it_was_otherwise() -> None:
    sunk = replace(WELL, accruing=2_000)
    told = judged(sunk, judge(sunk))
    assert (told.low_told_at, told.depleted_at) == (NOW, NOW)
    again = replace(told, at=NOW + timedelta(seconds=9))
    assert (judge(again).tell_low, judge(again).tell_depleted) == (False, False)
    assert judged(again, judge(again)).depleted_at == NOW
    lifted = replace(told, settled=2_100)
    assert (judge(lifted).low, judge(lifted).depleted, judge(lifted).tell_low) == (True, False, False)
    risen = replace(told, settled=9_000)
    forgotten = judged(risen, judge(risen))
    assert (forgotten.low_told_at, forgotten.depleted_at) == (None, None)
    sunk_again = judge(replace(forgotten, accruing=9_000))
    assert (sunk_again.tell_low, sunk_again.tell_depleted) == (True, True)


def test_where_nothing_runs_or_costs_nothing_is_foreseen() -> None:
    assert judge(replace(WELL, running=0, rate=0)).look_seconds is None
    free = replace(WELL, rate=0)
    assert (judge(free).look_seconds, free.runs_out_at) == (LOOK_SECONDS_MAX, None)
    rich = replace(WELL, settled=10**18)
    assert (judge(rich).look_seconds, rich.runs_out_at) == (LOOK_SECONDS_MAX, None)
    unwarned = replace(WELL, low_threshold=None)
    assert judge(unwarned).look_seconds == 89.95
    assert not judge(replace(unwarned, accruing=1_000)).low


def test_who_is_not_prepaid_is_neither_low_nor_depleted() -> None:
    found = judge(replace(WELL, prepaid=False, settled=-5, depleted_at=NOW, low_told_at=NOW))
    assert (found.low, found.depleted, found.look_seconds) == (False, False, None)
