"""Named subscriptions of notifications."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.notifications import store as subscriptions
from orchestrator.notifications.store import Subscription


async def list_subscriptions(database: Database, scope: UUID) -> Sequence[Subscription]:
    """Those of a tenant, or of the operators, by name."""
    async with database.read_one() as reading:
        return await subscriptions.list_subscriptions(reading, scope)
