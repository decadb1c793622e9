"""Reads of the log: the feed, consumers, dead letters, retention and the log's extent."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.transactions import Database, Reading
from orchestrator.log.store import consumers as consumer_positions
from orchestrator.log.store import dead_letters, retention, truncation
from orchestrator.log.store.consumers import LogConsumer, read_position
from orchestrator.log.store.dead_letters import DeadLetter, DueRetry
from orchestrator.log.store.feed import Filter, Scan, find_truncation, read_events
from orchestrator.log.store.retention import Policy
from orchestrator.log.store.truncation import LogCursor, LogExtent
from orchestrator.operations.execution import Context

EVENTS_MAX = 1_000
BYTES_MAX = 1024 * 1024
SCANNED_MAX = 20_000
"""Versions that one filtered read may scan."""


async def read_feed(
    database: Database, after: int, head: int, tenant_id: UUID | None, chosen: Filter, *, catching_up: bool = False
) -> Scan:
    """Return the selected events after `after`, bounded; continue from `scanned_to` for the rest.

    `catching_up`: a standby may serve them, as far as it has replayed the log, which is gapless up to there.
    """
    until = head if chosen.takes_all else min(head, after + SCANNED_MAX)

    async def read(reading: Reading) -> Scan:
        end = until if reading.replayed is None else min(until, reading.replayed)
        return await read_events(
            reading, after, end, tenant_id=tenant_id, chosen=chosen, limit=EVENTS_MAX, bytes_max=BYTES_MAX
        )

    return await read_replicated(database, read, snapshot=False, catch_up_after=after if catching_up else None)


async def find_kept(database: Database, after: int, tenant_id: UUID | None) -> tuple[int, bool]:
    """Return the lowest version kept, and whether a subscriber at `after` would miss events."""
    async with database.read_one() as reading:
        return await find_truncation(reading, after, tenant_id)


async def list_consumers(database: Database, *, after: str, limit: int) -> Sequence[LogConsumer]:
    """Return up to `limit` consumers after this name."""
    async with database.read_one() as reading:
        return await consumer_positions.list_consumers(reading, after, limit)


async def find_consumer_position(context: Context, consumer: str) -> int:
    """Return the consumer's offset; 0 for an unknown consumer."""
    async with context.database.reading() as reading:
        return await read_position(reading, consumer)


async def list_dead_letters(
    database: Database, *, state: str | None, consumer: str | None, after: UUID, limit: int
) -> list[DeadLetter]:
    """Return up to `limit` dead letters after this id, oldest first."""
    async with database.reading() as reading:
        return await dead_letters.list_dead_letters(reading, state=state, consumer=consumer, after=after, limit=limit)


async def find_dead_letter(database: Database, dead_letter_id: UUID) -> DeadLetter:
    """Return one dead letter. Raises `NotFound`."""
    async with database.read_one() as reading:
        return await dead_letters.read_dead_letter(reading, dead_letter_id)


async def find_due_retries(context: Context, consumer: str, limit: int) -> list[DueRetry]:
    """Return up to `limit` of a consumer's dead letters with a requested retry, with their events."""
    async with context.database.read_one() as reading:
        return await dead_letters.find_due_retries(reading, consumer, limit)


async def count_dead(context: Context, consumer: str) -> int:
    """Return how many dead letters of a consumer are not settled."""
    async with context.database.read_one() as reading:
        return await dead_letters.count_dead(reading, consumer)


async def find_policy(database: Database, scope: UUID, policy_id: str) -> Policy:
    """Return one policy. Raises `NotFound`."""
    async with database.read_one() as reading:
        return await retention.read_policy(reading, scope, policy_id)


async def list_policies(database: Database, scope: UUID) -> Sequence[Policy]:
    """Return the policies of a tenant, or of the operators, by id."""
    async with database.read_one() as reading:
        return await retention.list_policies(reading, scope)


async def find_cursors(database: Database, limit: int) -> tuple[LogExtent, list[LogCursor]]:
    """Return the extent of the log, and up to `limit` cursors, the one that needs the oldest version first."""
    async with database.reading() as reading:
        return await truncation.read_extent(reading), await truncation.read_cursors(reading, limit)
