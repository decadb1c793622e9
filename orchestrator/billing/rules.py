"""When a prepaid balance is low or depleted, and when to evaluate it again. Pure: (snapshot) -> evaluation.

Amounts are whole micro-units; times are the database's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.problems import Problem
from orchestrator.times import rfc3339

AMOUNT_MAX = 10**18
"""The largest ledger line, threshold or balance."""
EVALUATION_SECONDS_MAX = 600.0
"""The longest pause between two evaluations of a balance while an allocation runs."""
RELEASING_SECONDS = 1.0
"""The pause before a depleted balance with running allocations is evaluated again."""
_FORESEEN_SECONDS_MAX = 100 * 365 * 86_400.0


class Grouping(StrEnum):
    """What one item of usage covers."""

    ALLOCATION = "allocation"
    DAY = "day"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True)
class BalanceSnapshot:
    """A balance at the instant `at`.

    `settled`: the sum of the tenant's ledger lines. `accruing`: the cost so far of metered allocations without a line.
    `rate`: the cost per second of those that run; `running`: their number.
    """

    tenant_id: UUID
    prepaid: bool
    settled: int
    accruing: int
    rate: int
    running: int
    low_threshold: int | None
    low_told_at: datetime | None
    depleted_at: datetime | None
    at: datetime

    @property
    def available(self) -> int:
        """What is left."""
        return self.settled - self.accruing

    @property
    def runs_out_at(self) -> datetime | None:
        """When nothing is left at the present rate; None if nothing is charged, or not within a hundred years."""
        if not self.prepaid or self.rate == 0:
            return None
        seconds = self.available / self.rate
        if seconds > _FORESEEN_SECONDS_MAX:
            return None
        return self.at + timedelta(seconds=max(0.0, seconds))

    def document(self) -> JsonObject:
        """Return the JSON body."""
        return {
            "tenant_id": self.tenant_id,
            "prepaid": self.prepaid,
            "settled_micro_units": self.settled,
            "accruing_micro_units": self.accruing,
            "available_micro_units": self.available,
            "rate_micro_units_per_second": self.rate,
            "runs_out_at": rfc3339(self.runs_out_at),
            "low_threshold_micro_units": self.low_threshold,
            "low_told_at": rfc3339(self.low_told_at),
            "depleted_at": rfc3339(self.depleted_at),
            "at": rfc3339(self.at),
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Whether the balance is low and depleted, which events to emit, and in how many seconds to evaluate it again."""

    low: bool
    depleted: bool
    emit_low: bool
    emit_depleted: bool
    next_seconds: float | None


def evaluate(balance: BalanceSnapshot) -> Evaluation:
    """Evaluate a balance: low is below the threshold, depleted is nothing left.

    Each event is emitted once, and again only after the balance was above. With nothing running the balance cannot drop,
    so it is not evaluated again until something changes (`next_seconds` is None).
    """
    if not balance.prepaid:
        return Evaluation(False, False, False, False, None)
    depleted = balance.available <= 0
    low = balance.low_threshold is not None and balance.available < balance.low_threshold
    emit_low = low and balance.low_told_at is None
    emit_depleted = depleted and balance.depleted_at is None
    return Evaluation(low, depleted, emit_low, emit_depleted, _next_seconds(balance, low, depleted))


def apply_evaluation(balance: BalanceSnapshot, evaluation: Evaluation) -> BalanceSnapshot:
    """Return the balance as it is once the evaluation is stored."""
    return replace(
        balance,
        low_told_at=(balance.low_told_at or balance.at) if evaluation.low else None,
        depleted_at=(balance.depleted_at or balance.at) if evaluation.depleted else None,
    )


def _next_seconds(balance: BalanceSnapshot, low: bool, depleted: bool) -> float | None:
    if balance.running == 0:
        return None
    if depleted:
        return RELEASING_SECONDS
    if balance.rate == 0:
        return EVALUATION_SECONDS_MAX
    until = balance.available
    if balance.low_threshold is not None and not low:
        until = min(until, balance.available - balance.low_threshold)
    # Each interval's amount is rounded to the unit, so together they may be this far ahead of the rate.
    ahead = balance.running / 2
    return min(EVALUATION_SECONDS_MAX, max(0.0, until - ahead) / balance.rate)


class BalanceDepleted(Problem):
    """The tenant is prepaid and its balance is used up; a top-up lifts this."""

    status, code, title, business = 409, "balance_depleted", "Balance depleted", True

    @classmethod
    def of_tenant(cls) -> BalanceDepleted:
        """The refusal of a create, a hold or a start."""
        return cls("the prepaid balance is used up; top it up, then send the request again with a new key")


class BalanceInsufficient(Problem):
    """The tenant's allocations would be released at once if it became prepaid; `available_micro_units` is its balance."""

    status, code, title, business = 409, "balance_insufficient", "Balance insufficient", True


class BalanceOutOfBounds(Problem):
    """The balance would exceed its bound, `balance_max_micro_units`."""

    status, code, title, business = 409, "balance_out_of_bounds", "Balance out of bounds", True
