"""What a failed statement means for commands, decoded from the driver's error (`orchestrator.database.sqlstates.decode`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from orchestrator.problems import Quota


class Bound(StrEnum):
    """A bound that a function or a trigger enforces."""

    OPERATIONS = "operations"
    RESERVATIONS = "reservations"
    HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class RolledBack:
    """PostgreSQL rolled the transaction back because of a concurrent one (deadlock, serialisation)."""

    sqlstate: str


@dataclass(frozen=True, slots=True)
class LockTimeout:
    """A lock was not available in time."""


@dataclass(frozen=True, slots=True)
class RivalCommitted:
    """A rival committed a quota, units or a key that this transaction had found free; the command decides again."""

    sqlstate: str
    quota: bool


@dataclass(frozen=True, slots=True)
class BoundReached:
    """The statement would exceed a bound."""

    bound: Bound


@dataclass(frozen=True, slots=True)
class QuotaReached:
    """The statement would exceed a tenant's quota of rows."""

    quota: Quota
    tenant_id: UUID
    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class LeaderRefused:
    """This PostgreSQL is not the server that an operator accepted as the log's writer."""


@dataclass(frozen=True, slots=True)
class ConstraintRefused:
    """A constraint refused a row."""

    constraint: str | None


@dataclass(frozen=True, slots=True)
class TimeOverflow:
    """A time or an interval is beyond what PostgreSQL can represent."""


@dataclass(frozen=True, slots=True)
class ServerRefused:
    """The server cannot take the statement now: read-only, cancelled, timed out, or without disk, memory or connections."""


@dataclass(frozen=True, slots=True)
class RestoreRefused:
    """No connection was made: the database is being restored. `why` is a sentence that says so."""

    why: str


@dataclass(frozen=True, slots=True)
class NotConfirmedYet:
    """No connection was made: the primary may show commits that no standby has. `why` is a sentence that says so."""

    why: str


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection failed, or the server closed it."""


@dataclass(frozen=True, slots=True)
class Unforeseen:
    """No command acts on it. `sqlstate` is None if the driver failed without an answer of the server."""

    sqlstate: str | None


Failure = (
    RolledBack | LockTimeout | RivalCommitted | BoundReached | QuotaReached | LeaderRefused | ConstraintRefused | TimeOverflow
    | ServerRefused | RestoreRefused | NotConfirmedYet | ConnectionLost | Unforeseen
)  # fmt: skip
