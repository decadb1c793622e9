"""When a prepaid balance is low or used up, and when to look at it again. Pure: (standing) -> judgement.

Amounts are whole micro-units, times are the database's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from orchestrator.problems import Problem
from orchestrator.times import rfc3339

AMOUNT_MAX = 10**18
"""The most that one line, a threshold or a balance can be."""
LOOK_SECONDS_MAX = 600.0
"""What runs is looked at so often even where nothing is about to happen."""
RELEASING_SECONDS = 1.0
"""What is used up and still runs is looked at again after this."""
_FORESEEN_SECONDS_MAX = 100 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Standing:
    """A balance at the instant `at`.

    `settled`: the sum of the tenant's ledger lines. `accruing`: what its metered allocations cost by now that have no line yet.
    `rate`: what those of them that still run cost in a second; `running`: how many those are.
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
        """When nothing is left at the present rate; None if nothing is charged, or not for a hundred years."""
        if not self.prepaid or self.rate == 0:
            return None
        seconds = self.available / self.rate
        if seconds > _FORESEEN_SECONDS_MAX:
            return None
        return self.at + timedelta(seconds=max(0.0, seconds))

    def document(self) -> dict[str, Any]:
        """As clients read it."""
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
class Judgement:
    """What follows: whether it is low and depleted, which of the two is news, and in how many seconds to look again."""

    low: bool
    depleted: bool
    tell_low: bool
    tell_depleted: bool
    look_seconds: float | None


def judge(standing: Standing) -> Judgement:
    """Low is below the threshold, depleted is nothing left. Each is told once, and again only after it was otherwise.

    Where nothing runs nothing can sink, so there is nothing to look at until something changes.
    """
    if not standing.prepaid:
        return Judgement(False, False, False, False, None)
    depleted = standing.available <= 0
    low = standing.low_threshold is not None and standing.available < standing.low_threshold
    tell_low = low and standing.low_told_at is None
    tell_depleted = depleted and standing.depleted_at is None
    return Judgement(low, depleted, tell_low, tell_depleted, _look_seconds(standing, low, depleted))


def judged(standing: Standing, judgement: Judgement) -> Standing:
    """The same balance, as it stands once the judgement is written down."""
    return replace(
        standing,
        low_told_at=(standing.low_told_at or standing.at) if judgement.low else None,
        depleted_at=(standing.depleted_at or standing.at) if judgement.depleted else None,
    )


def _look_seconds(standing: Standing, low: bool, depleted: bool) -> float | None:
    if standing.running == 0:
        return None
    if depleted:
        return RELEASING_SECONDS
    if standing.rate == 0:
        return LOOK_SECONDS_MAX
    until = standing.available
    if standing.low_threshold is not None and not low:
        until = min(until, standing.available - standing.low_threshold)
    # Each interval's amount is rounded to the unit: together they may be so far ahead of the rate.
    ahead = standing.running / 2
    return min(LOOK_SECONDS_MAX, max(0.0, until - ahead) / standing.rate)


class BalanceDepleted(Problem):
    """The tenant is prepaid, and its balance is used up; a top-up lifts this."""

    status, code, title, business = 409, "balance_depleted", "Balance depleted", True

    @classmethod
    def of_tenant(cls) -> BalanceDepleted:
        """In the words for whoever wants to begin something."""
        return cls("the prepaid balance is used up; nothing can be begun before it is topped up")


class BalanceInsufficient(Problem):
    """What the tenant runs would be released at once if it became prepaid now; `available_micro_units` tells what it has."""

    status, code, title, business = 409, "balance_insufficient", "Balance insufficient", True


class BalanceOutOfBounds(Problem):
    """The balance would pass what it can hold; `balance_max_micro_units` names it."""

    status, code, title, business = 409, "balance_out_of_bounds", "Balance out of bounds", True
