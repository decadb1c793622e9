"""Connections to standbys: what each was found to be, and whether a read may use it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import psycopg
import sqlalchemy.exc
from psycopg.pq import TransactionStatus
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from orchestrator.database.calls import LINK, set_options
from orchestrator.database.pools import name_tenants
from orchestrator.database.replicas.rules import Fit
from orchestrator.database.row_security import TenantConnection

STATEMENT_SECONDS_MAX: Final = 2.0
"""For a statement on a standby, which then ends it; the primary serves the read instead."""
ANSWER_SECONDS_MAX: Final = 3.0
"""After which a standby that does not answer counts as lost: a frozen machine ends no statement."""
READ_SECONDS_MAX: Final = STATEMENT_SECONDS_MAX + ANSWER_SECONDS_MAX
"""For all statements of a read; then the primary serves it."""
CONNECT_SECONDS_MAX: Final = 2
"""libpq's least."""
STANDBY_LINK: Final[Mapping[str, int]] = {**LINK, "connect_timeout": CONNECT_SECONDS_MAX}


class StandbyConnection(TenantConnection):
    """A connection to a standby, which owes an answer soon: the primary can give it instead.

    What it finds says nothing of the primary: the timeline of its server deposes no other.
    """

    of_standby = True
    answer_seconds_max = ANSWER_SECONDS_MAX


class Standby:
    """One start of one server. `fit` is the last judgement, None while it is not to be used; `gone`: it will not return."""

    def __init__(self) -> None:
        self.fit: Fit | None = None
        self.gone = False

    @property
    def is_fit(self) -> bool:
        """Whether a read may use it now."""
        return self.fit is not None and time.monotonic() < self.fit.until


class ReplicaConnection:
    """One connection, which one read at a time uses. What is found of its server is shared with the others to it."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection
        self.standby = Standby()
        self._isolation_level = ""

    @property
    def driver(self) -> StandbyConnection:
        """The driver's connection."""
        pooled = self.connection.sync_connection
        assert pooled is not None, "it is connected"
        driver = pooled.connection.driver_connection
        assert isinstance(driver, StandbyConnection)
        return driver

    async def prepare(self, tenants: str | None, *, snapshot: bool) -> None:
        """Before a read, on rows of these `tenants`: one snapshot for all statements, or one for each. Raises `DBAPIError`."""
        level = "REPEATABLE READ" if snapshot else "AUTOCOMMIT"
        if level != self._isolation_level:
            await set_options(self.connection, isolation_level=level, postgresql_readonly=snapshot)
            self._isolation_level = level
        name_tenants(self.connection, tenants)

    async def finish(self) -> bool:
        """After a read: end its transaction; whether the connection can be used again."""
        if self.connection.invalidated or self.connection.closed or self.driver.closed:
            return False
        name_tenants(self.connection, None)
        try:
            await self.connection.rollback()
        except (sqlalchemy.exc.SQLAlchemyError, psycopg.Error):
            return False
        return self.driver.info.transaction_status == TransactionStatus.IDLE

    async def close(self) -> None:
        """Close it at once, without a word to its server, which may be frozen."""
        with suppress(sqlalchemy.exc.SQLAlchemyError, psycopg.Error):
            if not self.connection.invalidated:
                await self.connection.invalidate()
            await self.connection.close()


def standby_engine(url: str, application: str) -> AsyncEngine:
    """An engine that pools nothing: each of its connections is kept by a `ReplicaConnection`."""
    statement_ms = int(STATEMENT_SECONDS_MAX * 1000)
    settings = {"statement_timeout": statement_ms, "idle_in_transaction_session_timeout": 2 * statement_ms}
    options = " ".join(f"-c {name}={milliseconds}ms" for name, milliseconds in settings.items())
    session: dict[str, Any] = {"options": options, "application_name": application, **STANDBY_LINK}
    return create_async_engine(
        f"postgresql+psycopg://{url.partition('://')[2]}",
        poolclass=NullPool,
        hide_parameters=True,
        connect_args={**session, "async_creator_fn": StandbyConnection.connect},
    )


async def connect_standby(engine: AsyncEngine) -> ReplicaConnection:
    """A connection in autocommit mode. Raises `DBAPIError`, `psycopg.Error` or `OSError` if no standby can be reached."""
    found = ReplicaConnection(await engine.connect())
    await found.prepare(None, snapshot=False)
    return found
