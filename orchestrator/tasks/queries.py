"""Reads of node tasks for the sweepers."""

from __future__ import annotations

from uuid import UUID

from orchestrator.operations.execution import Context
from orchestrator.tasks.store import expiry


async def find_expired_tasks(context: Context, grace_seconds: float, limit: int) -> list[UUID]:
    """At most `limit` live tasks whose deadline passed more than `grace_seconds` ago, the earliest first."""
    async with context.database.reading() as reading:
        return await expiry.find_expired_tasks(reading, grace_seconds, limit)
