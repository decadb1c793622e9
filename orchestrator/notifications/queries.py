"""Reads of named subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.notifications import store as subscriptions
from orchestrator.notifications.store import Subscription


async def list_subscriptions(database: Database, scope: UUID, *, after: str, limit: int) -> Sequence[Subscription]:
    """Return up to `limit` subscriptions of a namespace after this name."""
    async with database.read_one() as reading:
        return await subscriptions.list_subscriptions(reading, scope, after, limit)
