"""Connections to PostgreSQL: the pool, the reserve of ending verbs, and those of calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from orchestrator.database.calls import CallConnections, CallGroup, FunctionCall, ReserveCall, set_options
from orchestrator.database.reserve import POOL_TIMEOUT_SECONDS, Ending, Reserve
from orchestrator.database.row_security import TenantConnection

if TYPE_CHECKING:
    from orchestrator.database.replicas.replica import Replica


class Pools:
    """Connections to PostgreSQL: a pool for every request, and a small reserve that only ending verbs may take.

    Ending verbs (release, cancel, confirm, a task's result) are never shed (P13): when the pool is exhausted they take a
    connection of the reserve, if the caller owns what they name (orchestrator/database/reserve.py).
    `replica`: standbys that serve some reads (orchestrator/database/replicas); None: the primary serves all.
    """

    replica: Replica | None = None

    def __init__(
        self,
        engine: AsyncEngine,
        reserve: Reserve,
        calls: Mapping[CallGroup, CallConnections],
        pool_size: int,
    ) -> None:
        self._engine = engine
        self._calls = calls
        self._reserve = reserve
        self._pool_size = pool_size
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
    async def connection(self, ending: Ending, tenants: str | None) -> AsyncIterator[AsyncConnection]:
        """A connection of the pool, or of the reserve for an ending verb while the pool is exhausted.

        Its transactions may touch rows of these `tenants` (orchestrator/database/row_security.py).
        """
        if ending.verb and self._wanted >= self._pool_size:
            async with self._reserve.connection(ending) as connection:
                name_tenants(connection, tenants)
                yield connection
            return
        self._wanted += 1
        try:
            async with self._engine.connect() as connection:
                name_tenants(connection, tenants)
                yield connection
        finally:
            self._wanted -= 1

    @asynccontextmanager
    async def call(self, group: CallGroup, ending: Ending, tenants: str | None) -> AsyncIterator[FunctionCall]:
        """A call over the group's connections, or over the reserve for an ending verb while all of them are in use."""
        calls = self._calls[group]
        if ending.verb and calls.exhausted and group is not CallGroup.ANYONE:
            async with self._reserve.connection(ending) as connection:
                await set_options(connection, isolation_level="AUTOCOMMIT")
                name_tenants(connection, tenants)
                yield ReserveCall(connection)
            return
        async with calls.call(POOL_TIMEOUT_SECONDS, tenants) as call:
            yield call

    def is_exhausted(self, group: CallGroup) -> bool:
        """Whether a call of an ending verb would take a connection of the reserve."""
        return self._calls[group].exhausted

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()
        await self._reserve.close()
        for calls in self._calls.values():
            await calls.close()


def name_tenants(connection: AsyncConnection, tenants: str | None) -> None:
    """The transactions of this connection may touch rows of these `tenants` from now on."""
    pooled = connection.sync_connection
    assert pooled is not None, "it is connected"
    driver = pooled.connection.driver_connection
    assert isinstance(driver, TenantConnection)
    driver.tenants = tenants
