"""What consumers of the log gave up on."""

from __future__ import annotations

from uuid import UUID

from orchestrator.execution import Context
from orchestrator.store import dead_letters
from orchestrator.store.database import Database
from orchestrator.store.dead_letters import DeadLetter, DueRetry


async def list_dead_letters(
    database: Database, *, state: str | None, consumer: str | None, after: UUID, limit: int
) -> list[DeadLetter]:
    """Up to `limit` dead letters after this id, oldest first."""
    async with database.reading() as reading:
        return await dead_letters.list_dead_letters(reading, state=state, consumer=consumer, after=after, limit=limit)


async def find_dead_letter(database: Database, dead_letter_id: UUID) -> DeadLetter:
    """One dead letter. Raises `NotFound`."""
    async with database.glance() as reading:
        return await dead_letters.read_dead_letter(reading, dead_letter_id)


async def find_due_retries(context: Context, consumer: str, limit: int) -> list[DueRetry]:
    """Up to `limit` of a consumer's dead letters that are to be handled again, with their events."""
    async with context.database.glance() as reading:
        return await dead_letters.find_due_retries(reading, consumer, limit)


async def count_dead(context: Context, consumer: str) -> int:
    """How many of a consumer's are dead."""
    async with context.database.glance() as reading:
        return await dead_letters.count_dead(reading, consumer)
