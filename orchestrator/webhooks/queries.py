"""Webhooks, and what they delivered."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.webhooks.store import deliveries as webhook_deliveries
from orchestrator.webhooks.store import dispatch as webhook_dispatch
from orchestrator.webhooks.store import webhooks
from orchestrator.webhooks.store.deliveries import Delivery
from orchestrator.webhooks.store.dispatch import Standing, Work
from orchestrator.webhooks.store.webhooks import Webhook


async def find_webhook(database: Database, tenant_id: UUID | None, webhook_id: UUID) -> Webhook:
    """One of the tenant's, or of the operators'. Raises `NotFound`."""
    async with database.read_one() as reading:
        return await webhooks.read_webhook(reading, tenant_id, webhook_id)


async def list_webhooks(database: Database, tenant_id: UUID | None, *, after: UUID, limit: int) -> list[Webhook]:
    """Those of the tenant, or of the operators, in the order in which they were made."""
    async with database.read_one() as reading:
        return await webhooks.list_webhooks(reading, tenant_id, after, limit)


async def list_deliveries(
    database: Database, tenant_id: UUID | None, webhook_id: UUID, *, state: str | None, before: int, limit: int
) -> list[Delivery]:
    """What the webhook had to deliver, the newest first. Raises `NotFound`."""
    async with database.reading() as reading:
        await webhooks.read_webhook(reading, tenant_id, webhook_id)
        return await webhook_deliveries.list_deliveries(reading, webhook_id, state=state, before=before, limit=limit)


async def find_delivery(database: Database, tenant_id: UUID | None, webhook_id: UUID, number: int) -> Delivery:
    """One of them. Raises `NotFound`."""
    async with database.reading() as reading:
        await webhooks.read_webhook(reading, tenant_id, webhook_id)
        return await webhook_deliveries.read_delivery(reading, webhook_id, number)


async def find_standing(database: Database) -> Standing:
    """How all of them are doing."""
    async with database.read_one() as reading:
        return await webhook_dispatch.read_standing(reading)


async def find_work(database: Database) -> Work:
    """What there is for a dispatcher to do."""
    async with database.read_one() as reading:
        return await webhook_dispatch.read_work(reading)
