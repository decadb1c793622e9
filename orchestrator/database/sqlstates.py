"""SQLSTATEs that commands act on, the project's own (migrations/functions) and PostgreSQL's, and their decoding."""

from __future__ import annotations

from uuid import UUID

import orjson
import psycopg
import sqlalchemy.exc

from berth.process.passing_states import PASSING_STATES, READ_ONLY
from berth.process.restore_gate import RestoreOpen
from orchestrator.database.outcomes import (
    Bound,
    BoundReached,
    ConnectionLost,
    ConstraintRefused,
    Failure,
    LeaderRefused,
    LockTimeout,
    NotConfirmedYet,
    QuotaReached,
    RestoreRefused,
    RivalCommitted,
    RolledBack,
    ServerRefused,
    TimeOverflow,
    Unforeseen,
)
from orchestrator.database.unconfirmed_commits import NoStandbyConfirms
from orchestrator.problems import Quota

ILLEGAL_TRANSITION = "BT001"
"""A trigger refused a state that the state machine does not reach from the row's state."""
CLAIM_REFUSED = "BC001"
"""A constraint refused a claim or a key of a placement; caught inside the placement functions."""
QUOTA_MOVED = "BQ001"
"""A rival used the tenant's quota between the decision and the lock; the transaction is retried."""
RESERVATION_BOUND_REACHED = "BF001"
"""A bound of the reservations is reached; the message names it, `reservations` or `holds`."""
TENANT_QUOTA_REACHED = "BQ002"
"""A tenant's quota of rows is reached; the detail names quota, tenant, limit and use."""
OPERATIONS_FULL = "BO001"
"""The bound of the operations table is reached."""
LEADER_UNACCEPTED = "BL001"
"""This PostgreSQL is not the server that an operator accepted as the log's writer."""
RESTORE_UNKNOWN = "BR001"
"""There is no such restore, or none is open."""
RESTORE_UNEXPORTED = "BR002"
"""The lost interval of a restore that is to be closed is neither exported nor given up."""
NAMESPACE_FULL = "BK001"
"""A transaction would exceed a quota of its key-value namespace; the detail as of `BQ002`."""
PRICE_MISSING = "BB001"
"""A metered interval names a price version that does not exist."""
LEDGER_IMMUTABLE = "BB002"
"""A trigger refused a change of a ledger row or a metered interval."""

SERIALIZATION_FAILURE = "40001"
"""Also raised by `kv_store_operations` if a key was used since it was checked."""
DEADLOCK_DETECTED = "40P01"
LOCK_NOT_AVAILABLE = "55P03"
CONSTRAINT_VIOLATED = "23"
"""The class of refused rows."""
EXCLUSION_VIOLATION = "23P01"
UNIQUE_VIOLATION = "23505"
OUT_OF_RESOURCES = "53"
"""The class of disk, memory and connections."""
STATEMENT_CANCELLED = "57014"
UNKNOWN_NAME = "42"
"""The class of tables, columns and functions that the schema does not have, and of missing privileges."""
UNPRIVILEGED = "42501"
"""The role may not do this; the schema has what it names."""
REFUSING_STATES = PASSING_STATES | {STATEMENT_CANCELLED}
"""Read-only server, statement cancelled, idle or transaction timeout: each ends before the commit."""
RETRYABLE_STATES = frozenset({SERIALIZATION_FAILURE, DEADLOCK_DETECTED})
RIVAL_STATES = frozenset({QUOTA_MOVED, EXCLUSION_VIOLATION, UNIQUE_VIOLATION})
"""A rival committed a quota, units or a key that this transaction had found free; the command decides again."""
TIME_OVERFLOWS = frozenset({"22008", "22015"})
"""A time or an interval beyond what PostgreSQL can represent."""
CONNECTION_CLOSED = ("08", "57P")
"""Classes of a connection that failed or that the server closed."""


def decode(error: sqlalchemy.exc.DBAPIError) -> Failure:
    """What the driver's error means; the only place that reads SQLSTATEs and diagnostics."""
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state in RETRYABLE_STATES:
        return RolledBack(state)
    if state in RIVAL_STATES:
        return RivalCommitted(state, quota=state == QUOTA_MOVED)
    if state == LOCK_NOT_AVAILABLE:
        return LockTimeout()
    if state == LEADER_UNACCEPTED:
        return LeaderRefused()
    if state in (TENANT_QUOTA_REACHED, NAMESPACE_FULL) and isinstance(error.orig, psycopg.Error):
        return _quota_reached(error.orig)
    if (bound := _bound_of(state, error)) is not None:
        return BoundReached(bound)
    if state in TIME_OVERFLOWS:
        return TimeOverflow()
    if state in REFUSING_STATES or (state is not None and state.startswith(OUT_OF_RESOURCES)):
        return ServerRefused()
    if isinstance(error.orig, RestoreOpen):
        return RestoreRefused(str(error.orig))
    if isinstance(error.orig, NoStandbyConfirms):
        return NotConfirmedYet(str(error.orig))
    if is_loss(error):
        return ConnectionLost()
    if state is not None and state.startswith(CONSTRAINT_VIOLATED):
        return ConstraintRefused(error.orig.diag.constraint_name if isinstance(error.orig, psycopg.Error) else None)
    return Unforeseen(state)


def _quota_reached(error: psycopg.Error) -> QuotaReached:
    told = orjson.loads(error.diag.message_detail or "{}")
    return QuotaReached(Quota(told["quota"]), UUID(told["tenant_id"]), told["limit"], told["used"])


def _bound_of(state: str | None, error: sqlalchemy.exc.DBAPIError) -> Bound | None:
    if state == OPERATIONS_FULL:
        return Bound.OPERATIONS
    if state == RESERVATION_BOUND_REACHED:
        return Bound.HOLDS if "holds" in str(error.orig).splitlines()[0] else Bound.RESERVATIONS
    return None


def is_of_standby(error: BaseException) -> bool:
    """Whether a driver's error says that its connection leads to a server that writes nothing."""
    return isinstance(error, psycopg.Error) and error.sqlstate == READ_ONLY


def is_cancelled(error: BaseException | None) -> bool:
    """Whether a driver's error says that the server ended the statement: its deadline was over."""
    return isinstance(error, psycopg.Error) and error.sqlstate == STATEMENT_CANCELLED


def is_of_another_schema(error: BaseException | None) -> bool:
    """Whether a driver's error says that the server lacks what the statement names."""
    state = (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""
    return state.startswith(UNKNOWN_NAME) and state != UNPRIVILEGED


def is_unprivileged(error: BaseException | None) -> bool:
    """Whether a driver's error says that the role lacks a privilege."""
    return isinstance(error, psycopg.Error) and error.sqlstate == UNPRIVILEGED


def is_loss(error: sqlalchemy.exc.DBAPIError) -> bool:
    """Whether the connection is gone, or leads to a standby; a server that refuses may close it as well."""
    state: str | None = getattr(error.orig, "sqlstate", None)
    if error.connection_invalidated or (isinstance(error.orig, psycopg.OperationalError) and state is None):
        return True
    return state is not None and (state == READ_ONLY or state.startswith(CONNECTION_CLOSED))
