"""Calls of SQL functions that are each a whole transaction, over psycopg without SQLAlchemy.

A call costs one round trip. Through SQLAlchemy's engine it costs three to six times as much: switching the connection to
autocommit and back, greenlets and result objects (docs/reference/performance.md).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Protocol

import orjson
import psycopg
import sqlalchemy.exc
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.types.json import set_json_loads
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from orchestrator.database.row_security import TenantConnection
from orchestrator.database.sqlstates import is_of_standby

LINK: Mapping[str, int] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""A server that vanished is noticed in about 11 s; a live one answers keepalive probes while a statement waits for a lock.
Seconds, the last in milliseconds (libpq's connection parameters)."""
TRUSTED_IDLE_SECONDS = 1.0
"""A connection that was idle for longer is tested before use; a test each time would cost every call a round trip."""


COMMITS_WAITING_MAX = 40
"""Sessions of a role that may wait for a standby: each abandoned commit leaves one, until a standby confirms it."""
_COMMITS_WAITING = b"select count(*) from pg_stat_activity where wait_event = 'SyncRep' and usename = current_user"


class CallGroup(StrEnum):
    """What a call is for. Each group has its own connections, so calls that wait for locks take none of another group's.

    `ANYONE`: reads for callers whose credential is not known yet. They take no connection of the reserve.
    `NODES`: polls and heartbeats, each of many nodes.
    `OWNERS`: reads of the owner of what a request ends, before it may take the reserve.
    """

    CREATES = "creates"
    RESERVATIONS = "reservations"
    NODES = "nodes"
    ANYONE = "anyone"
    OWNERS = "owners"


Parameters = Mapping[str, object]
"""The values of one statement, by name."""


class FunctionCall(Protocol):
    """One call: exactly one statement, its own transaction."""

    async def value(self, statement: str, parameters: Parameters) -> Any:
        """The single value that the statement returns. Raises SQLAlchemy's `DBAPIError`."""
        ...


class DirectCall:
    """A call over a connection of psycopg."""

    def __init__(self, connection: TenantConnection) -> None:
        self._connection = connection

    async def value(self, statement: str, parameters: Parameters) -> Any:
        """The single value that the statement returns. Raises `DBAPIError`, as SQLAlchemy does for its own connections."""
        try:
            row = await (await self._connection.execute(statement.encode(), parameters)).fetchone()
        except psycopg.Error as error:
            if is_of_standby(error):
                await self._connection.close()
            raise wrapped(error, lost=self._connection.closed) from error
        assert row is not None, "the statement returns one row"
        return row[0]


class ReserveCall:
    """A call over a connection of SQLAlchemy in autocommit mode: slower, for verbs that take one of the reserve."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def value(self, statement: str, parameters: Parameters) -> Any:
        """The single value that the statement returns."""
        return (await self._connection.exec_driver_sql(statement, dict(parameters))).scalar_one()


def wrapped(error: psycopg.Error, *, lost: bool) -> sqlalchemy.exc.DBAPIError:
    """The error as SQLAlchemy raises it. Its statement is left out: the parameters hold what tenants wrote."""
    return sqlalchemy.exc.DBAPIError(None, None, error, hide_parameters=True, connection_invalidated=lost)


def session_options(
    lock_timeout_seconds: float,
    transaction_timeout_seconds: float,
    operations_max: int | None,
    tenant_rows_max: Mapping[str, int],
) -> str:
    """The settings of each session, as libpq takes them."""
    settings = {
        "lock_timeout": f"{int(lock_timeout_seconds * 1000)}ms",
        "transaction_timeout": f"{int(transaction_timeout_seconds * 1000)}ms",
        "idle_in_transaction_session_timeout": f"{int(transaction_timeout_seconds * 1000)}ms",
    }
    if operations_max is not None:
        settings["berth.operations_max"] = str(operations_max)
    settings |= {f"berth.tenant_{kind}_max": str(limit) for kind, limit in tenant_rows_max.items()}
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


async def set_options(connection: AsyncConnection, **options: Any) -> None:
    """Set execution options. Raises `DBAPIError` for a connection that is closed, as a statement on it does.

    SQLAlchemy lets psycopg's own exception through where it sets the isolation level.
    """
    try:
        await connection.execution_options(**options)
    except psycopg.Error as error:
        await connection.invalidate(error)
        raise wrapped(error, lost=True) from error


class CallConnections:
    """At most `size` connections in autocommit mode, made by `connect` when needed; the one used last is used next."""

    def __init__(self, connect: Callable[[], Awaitable[TenantConnection]], size: int) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(size)
        self._idle: list[tuple[float, TenantConnection]] = []

    @property
    def exhausted(self) -> bool:
        """Whether a call would wait for a connection."""
        return self._free.locked()

    @asynccontextmanager
    async def call(self, timeout_seconds: float, tenants: str | None) -> AsyncIterator[DirectCall]:
        """A call, for acts on rows of these `tenants`.

        Raises SQLAlchemy's `TimeoutError` if no connection is free in time, `DBAPIError` if none can be made.
        """
        try:
            async with asyncio.timeout(timeout_seconds if self._free.locked() else None):
                await self._free.acquire()
        except TimeoutError:
            raise sqlalchemy.exc.TimeoutError("every connection for calls is in use") from None
        try:
            connection = await self._usable()
            connection.tenants = tenants
            try:
                yield DirectCall(connection)
            finally:
                connection.tenants = None
                # After a cancellation or a loss the session may still be busy; it ends with its connection.
                if (
                    connection.info.transaction_status == TransactionStatus.IDLE
                    and connection.info.pipeline_status == PipelineStatus.OFF
                ):
                    self._idle.append((time.monotonic(), connection))
                else:
                    await connection.close()
        finally:
            self._free.release()

    def distrust(self) -> None:
        """Test each idle connection before its next use: another one of this process was lost."""
        self._idle = [(-math.inf, connection) for _, connection in self._idle]

    async def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            await self._idle.pop()[1].close()

    async def _usable(self) -> TenantConnection:
        while self._idle:
            returned_at, connection = self._idle.pop()
            if time.monotonic() - returned_at < TRUSTED_IDLE_SECONDS or await connection.is_alive():
                return connection
            await connection.close()
            # Those that idle beside it are of the same server: to test each would take as long again.
            await self.close()
        try:
            connection = await self._connect()
        except psycopg.Error as error:
            raise wrapped(error, lost=True) from error
        set_json_loads(orjson.loads, connection)
        return connection


async def require_few_waiting(connection: TenantConnection) -> None:
    """Close this new connection and raise `OperationalError` if too many commits of its role wait for a standby.

    PostgreSQL keeps the session of a commit that waits, also when its client is gone: without a bound the abandoned ones would
    take every connection of the server.
    """
    cursor = await psycopg.AsyncCursor(connection).execute(_COMMITS_WAITING)
    row = await cursor.fetchone()
    if not connection.autocommit:
        await connection.rollback()
    if row is not None and row[0] >= COMMITS_WAITING_MAX:
        await connection.close()
        raise psycopg.OperationalError(f"{row[0]} commits wait for a standby")


def leave_standbys(engine: AsyncEngine) -> None:
    """End every connection of the pool once one of them turns out to lead to a standby: the address names the primary as well."""

    @event.listens_for(engine.sync_engine, "handle_error")
    def note_standby(context: ExceptionContext) -> None:
        if is_of_standby(context.original_exception):
            context.is_disconnect = True


def ping_after_idling(engine: AsyncEngine, note_loss: Callable[[], None]) -> None:
    """Test a connection at checkout only if it lay idle for a while: a ping each time costs every call a round trip."""

    @event.listens_for(engine.sync_engine, "checkin")
    def note_return(connection: Any, record: Any) -> None:
        del connection
        record.info["returned_at"] = time.monotonic()

    @event.listens_for(engine.sync_engine, "checkout")
    def ping(connection: Any, record: Any, proxy: Any) -> None:
        del proxy
        returned_at = record.info.get("returned_at")
        if returned_at is None or time.monotonic() - returned_at < TRUSTED_IDLE_SECONDS:
            return
        driver = connection.driver_connection
        assert isinstance(driver, TenantConnection)
        try:
            with driver.soon():
                engine.dialect.do_ping(connection)
        except psycopg.Error as error:
            note_loss()
            raise sqlalchemy.exc.InvalidatePoolError("the connection died while it lay idle") from error
