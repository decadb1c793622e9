"""Outcomes of placing one create. Pure.

A refusal is the `Problem` that the client receives: `QuotaExceeded`, `WindowInvalid`, `SshKeyNotFound`, `Forbidden`,
`BalanceDepleted`, or one that leaves no record, as `OperationInProgress`.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.operations.outcomes import StoredResponse, TryAgain
from orchestrator.problems import Problem


@dataclass(frozen=True, slots=True)
class Placed:
    """The allocation, its claim, its operation and its event are committed. `body` is the 201 response."""

    body: str


@dataclass(frozen=True, slots=True)
class NoRoom:
    """No unlocked node has the slots free. Nothing was written."""


@dataclass(frozen=True, slots=True)
class StaleCatalogue:
    """An operator changed the SKU or the image since it was read. Nothing was written; read the catalogue again."""


@dataclass(frozen=True, slots=True)
class LostRace:
    """Another request took the node or the key between the choice and the lock. Nothing was written; choose again."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A database error ended the item. The client receives `problem`; nothing is stored under its key."""

    problem: Problem


PlacementOutcome = Placed | StoredResponse | NoRoom | StaleCatalogue | LostRace | TryAgain | Failed | Problem
