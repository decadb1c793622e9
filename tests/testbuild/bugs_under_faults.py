"""Bugs that show only under a fault: a clock that steps, a full disk, an ended session, a certificate that has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.testbuild.planting import replace, rewritten_function

X509_V_FLAG_NO_CHECK_TIME = 0x200000
"""OpenSSL's flag; the module `ssl` has no name for it."""
DISK_FULL = "53100"

_step = timedelta()


@contextmanager
def clock_stepped(seconds: float) -> Iterator[None]:
    """The own clock of the bugs of this process is ahead by so much: what a preloaded library does to a process."""
    global _step
    _step = timedelta(seconds=seconds)
    try:
        yield
    finally:
        _step = timedelta()


def _own_now() -> datetime:
    return datetime.now(UTC) + _step


def judge_by_wall_clock() -> None:
    """Deadlines are evaluated by the process's wall clock, which is right most of the time."""
    from orchestrator.allocations import subject as locked_allocations
    from orchestrator.allocations.store import advance as allocations
    from orchestrator.reservations.store import reservations

    genuine, genuine_reservation = locked_allocations.Subject, reservations.ReservationSubject

    def subject(**values: Any) -> Any:
        return genuine(**{**values, "clock": _own_now()})

    def reservation(**values: Any) -> Any:
        return genuine_reservation(**{**values, "clock": _own_now()})

    replace(allocations, "Subject", subject)
    replace(reservations, "ReservationSubject", reservation)


def keep_ended_sessions() -> None:
    """A connection for calls goes back to its pool whatever became of its session, and is not tested."""
    from orchestrator.database import calls

    genuine = vars(calls.CallConnections)["_usable"]

    @asynccontextmanager
    async def call(self: Any, timeout_seconds: float, tenants: str | None) -> AsyncIterator[Any]:
        async with self._free:
            connection = self._idle.pop()[1] if self._idle else await genuine(self)
            connection.tenants = tenants
            try:
                yield calls.DirectCall(connection)
            finally:
                self._idle.append((0.0, connection))

    replace(calls.CallConnections, "call", call)


def acknowledge_without_room() -> None:
    """A commit for which there was no room counts as done: the response was ready before it."""
    from sqlalchemy.exc import DBAPIError

    from orchestrator.database import transactions

    @asynccontextmanager
    async def transaction(self: Any) -> AsyncIterator[Any]:
        async with self._pools.connection(self._ending, self.tenants) as connection:
            began = await connection.begin()
            try:
                yield transactions.Transaction(connection, self.response_version)
            except BaseException:
                await began.rollback()
                raise
            try:
                await began.commit()
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) != DISK_FULL:
                    raise

    replace(transactions.Database, "transaction", transaction)


def count_failed_statements_as_prepared() -> None:
    """A statement whose preparation failed counts as prepared for as long as its connection is open."""
    from orchestrator.database.row_security import TenantCursor

    replace(TenantCursor, "_forget_prepared", lambda self, before: None)


def accept_ended_certificates() -> None:
    """The listener for nodes verifies the chain of a certificate and not its dates."""
    from orchestrator.edge import tls

    genuine = vars(tls)["server_context"]

    def server_context(*files: Any) -> Any:
        context = genuine(*files)
        context.verify_flags |= X509_V_FLAG_NO_CHECK_TIME
        return context

    replace(tls, "server_context", server_context)


def judge_tasks_by_wall_clock() -> None:
    """The agent evaluates the expiry of a task by its own wall clock."""
    from node_agent.clock import ServerClock

    replace(ServerClock, "now", lambda self: datetime.now(UTC))


_OLDER = "xmin::text::bigint < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
LOG_BEHIND_OPEN_TRANSACTIONS = rewritten_function(
    "log_advance",
    (
        "select * from outbox order by id limit p_limit",
        f"select * from outbox where {_OLDER} order by id limit p_limit",
    ),
)
"""Only events older than every open transaction get a version."""
