"""When a balance is low, used up, and looked at again: the pure judgement."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.billing.rules import (
    EVALUATION_SECONDS_MAX,
    RELEASING_SECONDS,
    BalanceSnapshot,
    apply_evaluation,
    evaluate,
)

NOW = datetime(2026, 5, 1, tzinfo=UTC)
WELL = BalanceSnapshot(
    tenant_id=uuid.UUID(int=1), prepaid=True, settled=1_000, accruing=100, rate=10, running=1, low_threshold=500,
    low_told_at=None, depleted_at=None, at=NOW,
)  # fmt: skip


def test_well_above_it_is_looked_at_when_it_may_have_come_to_the_threshold() -> None:
    found = evaluate(WELL)
    assert (found.low, found.depleted, found.emit_low, found.emit_depleted) == (False, False, False, False)
    assert found.next_seconds == 39.95, "half a unit sooner: an interval's amount is rounded"
    assert WELL.runs_out_at == NOW + timedelta(seconds=90)


@pytest.mark.parametrize(
    ("accruing", "low", "depleted", "next_seconds"),
    [
        (500, False, False, 0), (501, True, False, 49.85), (999, True, False, 0.05), (1_000, True, True, RELEASING_SECONDS),
        (1_001, True, True, RELEASING_SECONDS),
    ],
)  # fmt: skip
def test_the_edges(accruing: int, low: bool, depleted: bool, next_seconds: float) -> None:
    found = evaluate(replace(WELL, accruing=accruing))
    assert (found.low, found.depleted, found.emit_low, found.emit_depleted) == (low, depleted, low, depleted)
    assert found.next_seconds == pytest.approx(next_seconds)


def test_each_is_reported_once_until_it_has_changed() -> None:
    sunk = replace(WELL, accruing=2_000)
    told = apply_evaluation(sunk, evaluate(sunk))
    assert (told.low_told_at, told.depleted_at) == (NOW, NOW)
    again = replace(told, at=NOW + timedelta(seconds=9))
    assert (evaluate(again).emit_low, evaluate(again).emit_depleted) == (False, False)
    assert apply_evaluation(again, evaluate(again)).depleted_at == NOW
    lifted = replace(told, settled=2_100)
    assert (evaluate(lifted).low, evaluate(lifted).depleted, evaluate(lifted).emit_low) == (True, False, False)
    risen = replace(told, settled=9_000)
    forgotten = apply_evaluation(risen, evaluate(risen))
    assert (forgotten.low_told_at, forgotten.depleted_at) == (None, None)
    sunk_again = evaluate(replace(forgotten, accruing=9_000))
    assert (sunk_again.emit_low, sunk_again.emit_depleted) == (True, True)


def test_where_nothing_runs_or_costs_nothing_is_foreseen() -> None:
    assert evaluate(replace(WELL, running=0, rate=0)).next_seconds is None
    free = replace(WELL, rate=0)
    assert (evaluate(free).next_seconds, free.runs_out_at) == (EVALUATION_SECONDS_MAX, None)
    rich = replace(WELL, settled=10**18)
    assert (evaluate(rich).next_seconds, rich.runs_out_at) == (EVALUATION_SECONDS_MAX, None)
    unwarned = replace(WELL, low_threshold=None)
    assert evaluate(unwarned).next_seconds == 89.95
    assert not evaluate(replace(unwarned, accruing=1_000)).low


def test_a_tenant_that_is_not_prepaid_is_neither_low_nor_depleted() -> None:
    found = evaluate(replace(WELL, prepaid=False, settled=-5, depleted_at=NOW, low_told_at=NOW))
    assert (found.low, found.depleted, found.next_seconds) == (False, False, None)
