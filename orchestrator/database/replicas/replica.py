"""The standbys that serve reads of this process: connections that the watch has found fit, and the reads over them.

A read takes only a connection whose standby was compared with the primary within the last seconds (`ReplicaWatch`). It is served
within a bound or not at all: then the caller reads from the primary. So a standby that is dead costs the reads in flight one
bounded wait, and those after them nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import psycopg
import sqlalchemy.exc
from sqlalchemy import text

from orchestrator.database.outcomes import ConnectionLost, RolledBack
from orchestrator.database.replicas import metrics
from orchestrator.database.replicas.connections import READ_SECONDS_MAX, ReplicaConnection, Standby
from orchestrator.database.replicas.rules import Cause, NotServed
from orchestrator.database.sqlstates import decode, is_cancelled
from orchestrator.database.transactions import Reading
from orchestrator.problems import Problem

PAUSE_SECONDS: Final = 0.005
PAUSE_SECONDS_MAX: Final = 0.04
LAG_CIRCUIT_SECONDS: Final = 1.0
"""For so long after a read waited in vain for its version, other reads check the standby once and do not wait."""
_HEAD = text("select version, leader_id, pg_is_in_recovery() as in_recovery from log_head")
_LEFT: Final = frozenset({Cause.LOST, Cause.NOT_A_STANDBY})
"""After these the connection is of no more use."""

Answer = TypeVar("Answer")
Read = Callable[[Reading], Awaitable[Answer]]


class _Behind(Exception):
    """The standby has not replayed the demanded version yet."""


class Replica:
    """Connections to standbys, and these by the identity of their server. `cause`: why no standby may serve, if none may.

    `doubts`: how often all of them were distrusted; a judgement that began before the last time does not count.
    `wait_seconds_max`: how long a read waits for a connection, and for its version.
    """

    def __init__(self, wait_seconds_max: float) -> None:
        self.standbys: dict[str, Standby] = {}
        self._wait_seconds_max = wait_seconds_max
        self._idle: list[ReplicaConnection] = []
        self._ready = asyncio.Semaphore(0)
        self._in_use = 0
        self.cause = Cause.UNVERIFIED
        self.doubts = 0
        self._newest_version = 0
        self._no_wait_until = float("-inf")

    async def read(
        self, read: Read[Answer], at_least: int, tenants: str | None, *, snapshot: bool, waits: bool = True
    ) -> tuple[Answer, int]:
        """The result of `read` on a standby that has this version, and the version that the standby has.

        Its statements take at most `READ_SECONDS_MAX` together.
        It shows the effects of each event up to there; of commits without a version some, all or none.
        `snapshot`: all statements of `read` see one snapshot; else each sees another, at least as new as that version.
        Raises `NotServed`.
        """
        if at_least > self._newest_version and time.monotonic() < self._no_wait_until:
            waits = False
        deadline = time.monotonic() + (self._wait_seconds_max if waits else 0.0)
        pause = PAUSE_SECONDS
        while True:
            try:
                return await self._attempt(read, at_least, tenants, snapshot, deadline)
            except _Behind:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._no_wait_until = time.monotonic() + LAG_CIRCUIT_SECONDS if waits else self._no_wait_until
                    raise NotServed(Cause.BEHIND) from None
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def note_served(self) -> None:
        """Count a read that a standby served."""
        metrics.READS.labels(source="standby").inc()

    def note_fallback(self, cause: Cause) -> None:
        """Count a read that the primary serves instead."""
        metrics.READS.labels(source="primary").inc()
        metrics.FALLBACKS.labels(cause=cause.value).inc()

    def note_version(self, version: int) -> None:
        """A standby was seen to have this version."""
        self._newest_version = max(self._newest_version, version)

    def note_cause(self, cause: Cause) -> None:
        """Why no standby may serve, if none may."""
        self.cause = cause

    def distrust(self) -> None:
        """Use no standby before it is examined again: a connection was lost, so another server may lead now."""
        for standby in self.standbys.values():
            standby.fit = None
        self.doubts += 1
        self.cause = Cause.UNVERIFIED
        self._newest_version = 0

    @property
    def size(self) -> int:
        """How many connections there are for reads."""
        return len(self._idle) + self._in_use

    def add(self, held: ReplicaConnection) -> None:
        """Let reads use a connection, once its standby is fit."""
        self._idle.append(held)
        self._ready.release()
        metrics.CONNECTIONS.set(self.size)

    async def close_gone(self) -> None:
        """Close what no read uses of standbys that will not return."""
        await self._close([held for held in self._idle if held.standby.gone])

    async def close(self) -> None:
        """Close every connection that no read uses."""
        await self._close(list(self._idle))

    async def _close(self, ending: list[ReplicaConnection]) -> None:
        for held in ending:
            if held in self._idle and not self._ready.locked():
                await self._ready.acquire()  # at once
                self._idle.remove(held)
                await held.close()
        metrics.CONNECTIONS.set(self.size)

    async def _attempt(
        self, read: Read[Answer], at_least: int, tenants: str | None, snapshot: bool, deadline: float
    ) -> tuple[Answer, int]:
        held = await self._take(deadline)
        is_whole = False
        end = asyncio.timeout(READ_SECONDS_MAX)
        try:
            async with end:
                answer = await _read_on(held, read, at_least, tenants, snapshot)
            is_whole = True
            self.note_version(answer[1])
            return answer
        except TimeoutError:
            if end.expired():
                raise NotServed(Cause.SLOW) from None
            raise
        except _Behind:
            is_whole = True
            raise
        except NotServed as refused:
            is_whole = refused.cause not in _LEFT
            if refused.cause is Cause.LOST:
                self.distrust()
            raise
        finally:
            await self._leave(held, is_whole)

    async def _take(self, deadline: float) -> ReplicaConnection:
        """A connection to a fit standby. Raises `NotServed`."""
        if not self.size or not any(standby.is_fit for standby in self.standbys.values()):
            raise NotServed(self.cause)
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await self._ready.acquire()
        except TimeoutError:
            raise NotServed(Cause.BUSY) from None
        place = next((n for n in reversed(range(len(self._idle))) if self._idle[n].standby.is_fit), None)
        if place is None:
            self._ready.release()
            raise NotServed(self.cause)
        self._in_use += 1
        return self._idle.pop(place)

    async def _leave(self, held: ReplicaConnection, is_whole: bool) -> None:
        try:
            if is_whole and not held.standby.gone and await held.finish():
                self._idle.append(held)
                self._ready.release()
            else:
                await held.close()
        finally:
            self._in_use -= 1
            metrics.CONNECTIONS.set(self.size)


async def _read_on(
    held: ReplicaConnection, read: Read[Answer], at_least: int, tenants: str | None, snapshot: bool
) -> tuple[Answer, int]:
    """The result of `read`, and the head that was read before it. Raises `NotServed`, `_Behind`."""
    fit = held.standby.fit
    assert fit is not None, "it was fit when it was taken"
    try:
        await held.prepare(tenants, snapshot=snapshot)
        head = (await held.connection.execute(_HEAD)).one()
        if not head.in_recovery:
            raise NotServed(Cause.NOT_A_STANDBY)
        if head.leader_id != fit.leader_id:
            raise NotServed(Cause.OTHER_LEADER)
        if head.version < at_least:
            raise _Behind
        return await read(Reading(held.connection, head.version)), head.version
    except Problem as refusal:
        # A refusal says that something is not there: the primary decides that.
        raise NotServed(Cause.REFUSED) from refusal
    except (sqlalchemy.exc.DBAPIError, psycopg.Error) as error:
        raise NotServed(_cause_of(error)) from error


def _cause_of(error: sqlalchemy.exc.DBAPIError | psycopg.Error) -> Cause:
    driver = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error
    if is_cancelled(driver):
        return Cause.SLOW
    if isinstance(error, psycopg.Error):
        return Cause.LOST
    match decode(error):
        case RolledBack():
            return Cause.CONFLICT
        case ConnectionLost():
            return Cause.LOST
        case _:
            return Cause.FAILED
