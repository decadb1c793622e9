"""A durable consumer of the log: each event takes effect once, in the consumer's own Postgres (docs/how-to/consume-events.md).

Effect and position commit in one transaction of the consumer's database, so there is nothing between them that a crash
could cut. The position is a version, which means the same on the feed and on NATS: an event that arrives twice is skipped, from
either source, and a missing event is detected by the chain.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol

import psycopg

from berth.client.consumer_positions import POSITIONS_TABLE, Connection, begin_position, lock_position, move_position
from berth.client.feed.events import Event
from berth.client.log_errors import EventStubbed, LogGap, PositionLost, log_gap
from berth.process.passing_states import PASSING_STATES

log = logging.getLogger("berth.client.consumer")
BATCH_MAX = 500
FIRST_PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 10.0
PASSING_ERRORS: tuple[type[psycopg.Error], ...] = (
    psycopg.OperationalError, *map(psycopg.errors.lookup, sorted(PASSING_STATES)),
)  # fmt: skip
"""The database does not answer, refuses writes, or has ended the session: the consumer connects again."""

Handler = Callable[[Connection, Sequence[Event]], Awaitable[None]]
"""Takes the open transaction and the events that are new to it, in order. It neither commits nor rolls back."""
Connect = Callable[[], Awaitable[Connection]]


class Source(Protocol):
    """Where events come from. Any number may come twice; what is missing must show in the chain."""

    def event_lists(self, after: int) -> AsyncGenerator[Sequence[Event], None]:
        """Events behind the version `after`, in order, without an end; reconnects by itself.

        Raises a `BerthError` where that cannot help, `LogTruncated` where events behind `after` are gone.
        """


class Consumer:
    """Hands events to `handle`, at most `batch_max` in a transaction, and keeps its position beside their effect.

    `connect` opens a connection to the consumer's database, which has the table of positions (`create_positions_table`).
    A consumer that has no position yet begins behind `begin_after`. `event_types`: only these are handed on; the others are
    looked at all the same, so that the chain is whole. Any number may run under one name: each event is handled by one of them.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        connect: Connect,
        handle: Handler,
        *,
        begin_after: int = 0,
        event_types: frozenset[str] | None = None,
        batch_max: int = BATCH_MAX,
        positions_table: str = POSITIONS_TABLE,
    ) -> None:
        self._name = name
        self._source = source
        self._connect = connect
        self._handle = handle
        self._begin_after = begin_after
        self._event_types = event_types
        self._batch_max = batch_max
        self._table = positions_table
        self._tries = 0
        self._gap: int | None = None
        self.position: int | None = None
        """Everything up to this version is done; None before the first look."""

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Consume until `stop` is set: the transaction at work is finished then, and nothing of it is left half done.

        A database or a source that does not answer is tried again, for as long as it takes; so is a database that refuses writes,
        or ends a session whose transaction took too long (`berth.process.passing_states`). Raises what `handle` raises,
        after a rollback; `LogGap` if the source omits an event twice; `LogTruncated`,
        `EventStubbed`, `PositionLost`, and the source's refusals.
        """
        stopping = asyncio.create_task((stop or asyncio.Event()).wait())
        try:
            while not stopping.done():
                await self._work_until(stopping)
        finally:
            stopping.cancel()

    async def _work_until(self, stopping: asyncio.Task[Any]) -> None:
        """One connection's work. Returns after trouble that passes, and after a pause."""
        try:
            connection = await self._connect()
            try:
                await self._consume(connection, stopping)
            finally:
                await connection.close()
        except PASSING_ERRORS as error:
            step = min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 2.0 ** min(self._tries, 16))
            self._tries += 1
            log.warning("consumer %s: its database: %s", self._name, str(error).strip())
            await asyncio.wait([stopping], timeout=step * random.uniform(0.5, 1.0))

    async def _consume(self, connection: Connection, stopping: asyncio.Task[Any]) -> None:
        async with connection.transaction():
            self.position = await begin_position(connection, self._table, self._name, self._begin_after)
        async with aclosing(self._source.event_lists(self.position)) as lists:
            while (events := await _next(lists, stopping)) is not None:
                for start in range(0, len(events), self._batch_max):
                    try:
                        await self._commit(connection, events[start : start + self._batch_max])
                    except LogGap as gap:
                        # Once is a source that lost its place, and this begins anew from what is stored.
                        if self._gap == gap.extra["after"]:
                            raise
                        self._gap = gap.extra["after"]
                        log.warning("consumer %s: %s", self._name, gap)
                        return
                    if stopping.done():
                        return

    async def _commit(self, connection: Connection, events: Sequence[Event]) -> None:
        """All of the events that are new, or none. Raises `LogGap` without an effect."""
        async with connection.transaction():
            position = await lock_position(connection, self._table, self._name)
            if self.position is not None and position < self.position:
                raise PositionLost(
                    f"the position of {self._name} went back from {self.position} to {position}", code="position_lost"
                )
            fresh = _following(position, events)
            if fresh:
                wanted = [e for e in fresh if self._event_types is None or e.event_type in self._event_types]
                for event in wanted:
                    if event.is_stub:
                        raise EventStubbed(
                            f"NATS does not carry what the event at version {event.version} says; read it from the feed",
                            code="event_stubbed",
                            extra={"version": event.version},
                        )
                if wanted:
                    await self._handle(connection, wanted)
                position = fresh[-1].version
                await move_position(connection, self._table, self._name, position)
        self.position, self._tries = position, 0


def _following(position: int, events: Sequence[Event]) -> list[Event]:
    """Those of the events that are not done yet. Raises `LogGap` if one before them is missing."""
    fresh = []
    for event in events:
        if event.version <= position:
            continue
        if event.prev_version is None or event.prev_version > position:
            raise log_gap(position, -1 if event.prev_version is None else event.prev_version)
        position = event.version
        fresh.append(event)
    return fresh


async def _next(lists: AsyncGenerator[Sequence[Event], None], stopping: asyncio.Task[Any]) -> Sequence[Event] | None:
    """The next events, or None when it is time to stop; the source is then left in order."""
    coming = asyncio.ensure_future(anext(lists))
    try:
        await asyncio.wait([coming, stopping], return_when=asyncio.FIRST_COMPLETED)
        if coming.done():
            return coming.result()
    finally:
        while not coming.done():
            coming.cancel()
            await asyncio.wait([coming], timeout=1.0)
    with suppress(asyncio.CancelledError, Exception):
        coming.result()
    return None
