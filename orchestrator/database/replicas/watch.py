"""Compares each standby with the primary once a second, and makes connections to standbys: no request waits for either."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Final

import psycopg
import sqlalchemy.exc
import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from orchestrator.database.replicas import metrics
from orchestrator.database.replicas.connections import ReplicaConnection, Standby, connect_standby
from orchestrator.database.replicas.facts import UnfitServer, read_event_id, read_primary, read_standby
from orchestrator.database.replicas.replica import Replica
from orchestrator.database.replicas.rules import (
    MEANINGS,
    Cause,
    Fit,
    PrimaryFacts,
    StandbyFacts,
    judge_standby,
)
from orchestrator.database.transactions import Database, TransactionConflict
from orchestrator.problems import Problem

log = structlog.get_logger("orchestrator.replicas")
ROUND_SECONDS: Final = 1.0
CONNECT_SECONDS_OF_ROUND: Final = 1.0
"""After which a round makes no more connections: one that meets a frozen server takes seconds, and judgements run out."""


class ReplicaWatch:
    """Keeps `size` connections for reads, and one more to each standby, which is examined over it.

    `primary`: connections to the primary that no request uses.
    """

    def __init__(
        self, replica: Replica, engine: AsyncEngine, primary: Database, *, size: int, lag_seconds_max: float
    ) -> None:
        self._replica = replica
        self._engine = engine
        self._primary = primary.for_platform()
        self._size = size
        self._lag_seconds_max = lag_seconds_max
        self._history: deque[PrimaryFacts] = deque(maxlen=int(lag_seconds_max / ROUND_SECONDS) + 2)
        self._examined: dict[str, ReplicaConnection] = {}
        self._said: Cause | None = Cause.UNVERIFIED
        self._was_ahead = False
        self._doubts = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Examine in the background for the length of the block; at its end every connection is closed."""
        task = asyncio.create_task(self._run(), context=Context())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            await self.close()

    async def close(self) -> None:
        """Close every connection."""
        for server in list(self._examined):
            await self._leave(server)
        await self._replica.close()
        await self._engine.dispose()
        await self._primary.close()

    async def _run(self) -> None:
        while True:
            try:
                await self.examine()
            except Exception:
                # Whatever it is: without the watch no standby would serve again.
                log.exception("replica_watch_failed")
                self._say(Cause.FAILED)
            await asyncio.sleep(ROUND_SECONDS)

    async def examine(self) -> None:
        """One round: read the primary, compare each standby with it, and make the connections that are missing."""
        try:
            self._doubts = self._replica.doubts
            await self._read_primary()
            for server, held in list(self._examined.items()):
                await self._examine(server, held)
            await self._replica.close_gone()
            found = await self._connect()
        except (Problem, TransactionConflict, sqlalchemy.exc.DBAPIError):
            # The primary does not answer; what was found fit before stays so for its few seconds.
            found = Cause.UNVERIFIED
        self._say(None if any(standby.is_fit for standby in self._replica.standbys.values()) else found)

    async def _read_primary(self) -> None:
        async with self._primary.read_one() as reading:
            facts = await read_primary(reading)
        if self._history and self._history[-1].leader_id != facts.leader_id:
            self._history.clear()
        self._history.append(facts)

    async def _examine(self, server: str, held: ReplicaConnection) -> None:
        try:
            facts = await read_standby(held)
        except UnfitServer as unfit:
            self._refuse(held.standby, unfit.cause)
            if unfit.cause is Cause.LOST:
                await self._leave(server)
            return
        await self._judge(held.standby, facts)
        if not facts.in_recovery:
            await self._leave(server)

    async def _judge(self, standby: Standby, facts: StandbyFacts) -> None:
        async with self._primary.read_one() as reading:
            event_id = await read_event_id(reading, facts.version)
        verdict = judge_standby(self._history, facts, event_id, self._lag_seconds_max)
        if self._doubts != self._replica.doubts:
            self._refuse(standby, Cause.UNVERIFIED)
        elif isinstance(verdict, Fit):
            standby.fit = verdict
            self._replica.note_version(facts.version)
            metrics.LAG_SECONDS.set(verdict.lag_seconds)
        else:
            self._refuse(standby, verdict.cause)

    def _refuse(self, standby: Standby, cause: Cause) -> None:
        standby.fit = None
        self._replica.note_cause(cause)
        metrics.LAG_SECONDS.set(self._lag_seconds_max)

    async def _leave(self, server: str) -> None:
        """Drop a standby permanently. A server that returns at its address is examined anew."""
        held = self._examined.pop(server)
        held.standby.fit = None
        held.standby.gone = True
        del self._replica.standbys[server]
        await held.close()

    async def _connect(self) -> Cause | None:
        """Make connections that are missing; return why one could not be made, or what is wrong with its standby."""
        end = time.monotonic() + CONNECT_SECONDS_OF_ROUND
        while self._replica.size < self._size or not self._examined:
            try:
                held = await connect_standby(self._engine)
            except (sqlalchemy.exc.SQLAlchemyError, psycopg.Error, OSError) as error:
                log.debug("standby_unreachable", why=str(error))
                self._replica.note_cause(Cause.UNREACHABLE)
                return Cause.UNREACHABLE
            found = await self._enlist(held)
            if found is not None:
                return found  # the next connection would probably lead to the same server
            if time.monotonic() >= end:
                break  # the next round goes on
        return next((self._replica.cause for standby in self._replica.standbys.values() if not standby.is_fit), None)

    async def _enlist(self, held: ReplicaConnection) -> Cause | None:
        """Keep a new connection, the first to a standby for its examination; return what is wrong with the standby."""
        try:
            facts = await read_standby(held)
            known = self._replica.standbys.get(facts.server)
            if known is None:
                await self._judge(held.standby, facts)
        except BaseException as error:
            await held.close()
            if isinstance(error, UnfitServer):
                self._replica.note_cause(error.cause)
                return error.cause
            raise
        if known is not None:
            held.standby = known
            self._replica.add(held)
        elif facts.in_recovery:
            self._replica.standbys[facts.server] = held.standby
            self._examined[facts.server] = held
        else:
            await held.close()
        return None if held.standby.is_fit else self._replica.cause

    def _say(self, found: Cause | None) -> None:
        """Log a change of whether standbys serve; that one is ahead of the primary if it still is in the next round."""
        is_new, self._was_ahead = found is Cause.AHEAD and not self._was_ahead, found is Cause.AHEAD
        if found is self._said or is_new:
            return
        self._said = found
        if found is None:
            log.info("standbys_serve_reads", connections=self._replica.size)
        else:
            log.warning("standbys_unfit", cause=found.value, why=MEANINGS[found])
