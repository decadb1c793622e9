"""Outcomes of holding, confirming, cancelling, consuming and turning over. Pure.

A refusal is the `Problem` that the client receives. `StoredResponse`, `TryAgain`, `NoRoom` and `StaleCatalogue` mean what
they mean for creates.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from orchestrator.operations.outcomes import StoredResponse, TryAgain
from orchestrator.placement.outcomes import NoRoom, StaleCatalogue
from orchestrator.problems import Problem


@dataclass(frozen=True, slots=True)
class Held:
    """The reservation, its claims, its operation and its event are committed. `body` is the 201 response."""

    body: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The reservation is confirmed, by this request or before it. `body` is the 200 response."""

    body: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The reservation is cancelled or expired, by this request or before it. `body` is the 200 response."""

    body: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """The hold's deadline has passed, by the clock after its lock. Nothing was written."""


@dataclass(frozen=True, slots=True)
class EndedInstead:
    """The request came too late: the reservation has ended, and the refusal is stored. `status` and `body` are the response."""

    status: int
    body: str


@dataclass(frozen=True, slots=True)
class Consumed:
    """One claim belongs to a new allocation, and the operation is stored. `body` is the 201 response."""

    body: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The tenant has no reservation with this id. Nothing was written."""


@dataclass(frozen=True, slots=True)
class TurnedOver:
    """One claim belongs to a new allocation. `body` is the 201 response; `last`: the reservation holds nothing any more."""

    allocation_id: UUID
    body: str
    last: bool


HoldOutcome = Held | StoredResponse | NoRoom | TryAgain | Problem
ConfirmOutcome = Confirmed | StoredResponse | Overdue | Missing | TryAgain | Problem
LateConfirmOutcome = EndedInstead | StoredResponse | Missing | TryAgain | Problem
CancelOutcome = Cancelled | StoredResponse | Missing | TryAgain | Problem
ConsumeOutcome = Consumed | EndedInstead | StoredResponse | Missing | TryAgain | StaleCatalogue | Problem
TurnOverOutcome = TurnedOver | StaleCatalogue | Problem
