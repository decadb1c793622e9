"""Connections to PostgreSQL: the pool, the reserve of ending verbs, and those of calls."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from orchestrator.database.calls import CallConnections, CallGroup, FunctionCall, ReserveCall, set_options
from orchestrator.database.row_security import TenantConnection
from orchestrator.problems import Overloaded

POOL_TIMEOUT_SECONDS = 10.0
TOO_MANY = "the connection pool is exhausted; retry later or use another replica"


class Pools:
    """Connections to PostgreSQL: a pool for every request, and a small reserve that only ending verbs may take.

    Ending verbs (release, cancel, confirm, a task's result) are never shed (P13): when the pool is exhausted they take a
    connection of the reserve. No verb may take the whole reserve, so a flood of confirms leaves a connection for a
    release; that needs a reserve of two.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        reserve: AsyncEngine,
        calls: Mapping[CallGroup, CallConnections],
        pool_size: int,
        reserve_size: int,
    ) -> None:
        self._engine = engine
        self._calls = calls
        self._reserve = reserve
        self._pool_size = pool_size
        self._shares: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(max(1, reserve_size - 1))
        )
        self._wanted = 0
        self._lost: list[Callable[[], None]] = [connections.distrust for connections in calls.values()]

    def when_lost(self, notify: Callable[[], None]) -> None:
        """Call `notify` whenever a connection turns out to be lost: the next server may be another one (a failover)."""
        self._lost.append(notify)

    def note_loss(self) -> None:
        """A connection was lost."""
        for notify in self._lost:
            notify()

    @asynccontextmanager
    async def connection(self, ending_verb: str, tenants: str | None) -> AsyncIterator[AsyncConnection]:
        """A connection of the pool, or of the reserve for an ending verb while the pool is exhausted.

        Its transactions may touch rows of these `tenants` (orchestrator/database/row_security.py).
        """
        if ending_verb and self._wanted >= self._pool_size:
            async with self._share_of_reserve(ending_verb), self._reserve.connect() as connection:
                _name_tenants(connection, tenants)
                yield connection
            return
        self._wanted += 1
        try:
            async with self._engine.connect() as connection:
                _name_tenants(connection, tenants)
                yield connection
        finally:
            self._wanted -= 1

    @asynccontextmanager
    async def call(self, group: CallGroup, ending_verb: str, tenants: str | None) -> AsyncIterator[FunctionCall]:
        """A call over the group's connections, or over the reserve for an ending verb while all of them are in use."""
        calls = self._calls[group]
        if ending_verb and calls.exhausted and group is not CallGroup.ANYONE:
            async with self._share_of_reserve(ending_verb), self._reserve.connect() as connection:
                await set_options(connection, isolation_level="AUTOCOMMIT")
                _name_tenants(connection, tenants)
                yield ReserveCall(connection)
            return
        async with calls.call(POOL_TIMEOUT_SECONDS, tenants) as call:
            yield call

    @asynccontextmanager
    async def _share_of_reserve(self, verb: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(POOL_TIMEOUT_SECONDS):
                await self._shares[verb].acquire()
        except TimeoutError:
            raise Overloaded(TOO_MANY) from None
        try:
            yield
        finally:
            self._shares[verb].release()

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()
        await self._reserve.dispose()
        for calls in self._calls.values():
            await calls.close()


def _name_tenants(connection: AsyncConnection, tenants: str | None) -> None:
    pooled = connection.sync_connection
    assert pooled is not None, "it is connected"
    driver = pooled.connection.driver_connection
    assert isinstance(driver, TenantConnection)
    driver.tenants = tenants
