"""A consumer whose effects can be counted: it writes down each event that it is handed, in its own transaction."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg

from berth.client.consumer import Consumer, Source
from berth.client.consumer_positions import Connection, create_positions_table
from berth.client.feed.events import Event
from tests.support.waiting import async_wait_for

WAIT_SECONDS_MAX = 60.0


def prepare(url: str) -> None:
    """Create the tables of a consumer."""

    async def make() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await create_positions_table(connection)
            await create_positions_table(connection)  # again is harmless
            await connection.execute(
                "create table if not exists effects (n bigint generated always as identity, consumer text, version bigint, "
                "event_id uuid, event_type text, data jsonb)"
            )

    asyncio.run(make())


def event(version: int, prev_version: int | None = None, **members: Any) -> Event:
    """The event of a version, in an operator's chain unless its predecessor is named."""
    known: dict[str, Any] = {
        "version": version, "prev_version": version - 1 if prev_version is None else prev_version,
        "event_id": uuid.UUID(int=version), "event_type": "things.happened", "occurred_at": datetime.now(UTC),
        "subject": f"things/{version}", "correlation_id": uuid.UUID(int=0), "tenant_id": None, "operation_key": None,
        "request_id": None, "leader_id": "1-1", "data": {},
    }  # fmt: skip
    return Event(**{**known, **members})


def writing(name: str) -> Callable[[Connection, Sequence[Event]], Awaitable[None]]:
    """A handler that inserts one row per event; nothing in it prevents duplicates."""

    async def handle(transaction: Connection, events: Sequence[Event]) -> None:
        async with transaction.cursor() as cursor:
            await cursor.executemany(
                "insert into effects (consumer, version, event_id, event_type) values (%s, %s, %s, %s)",
                [(name, event.version, event.event_id, event.event_type) for event in events],
            )

    return handle


def effects(database: psycopg.Connection[Any], name: str) -> list[int]:
    """The versions whose effect there is, in the order in which they took effect."""
    rows = database.execute("select version from effects where consumer = %s order by n", (name,)).fetchall()
    return [row[0] for row in rows]


def position(database: psycopg.Connection[Any], name: str) -> int | None:
    """The stored position of the consumer."""
    row = database.execute("select version from berth_consumer_positions where consumer = %s", (name,)).fetchone()
    return None if row is None else int(row[0])


def consumer_of(url: str, name: str, source: Source, **settings: Any) -> Consumer:
    """A consumer with countable effects."""

    async def connect() -> Connection:
        return await psycopg.AsyncConnection.connect(url)

    handle = settings.pop("handle", None) or writing(name)
    return Consumer(name, source, connect, handle, **settings)


async def run_until(consumer: Consumer, done: Callable[[], bool]) -> None:
    """Run it until `done`, then stop it in order. Raises what it raises."""
    stop = asyncio.Event()

    async def watch() -> None:
        await async_wait_for(done, "the consumer to be done")
        stop.set()

    watching = asyncio.create_task(watch())
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await consumer.run(stop)
    finally:
        watching.cancel()


class Scripted:
    """A source that returns prepared lists, then nothing more; `asked` records the position of each request."""

    def __init__(self, tell: Callable[[int], Iterable[list[Event]]]) -> None:
        self._tell = tell
        self.asked: list[int] = []

    async def event_lists(self, after: int) -> AsyncGenerator[list[Event], None]:
        """Everything at once, and then a wait without an end."""
        self.asked.append(after)
        for events in self._tell(after):
            yield events
        await asyncio.Event().wait()
