"""Reads of webhooks and their deliveries."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.webhooks.store import attempts as webhook_attempts
from orchestrator.webhooks.store import deliveries as webhook_deliveries
from orchestrator.webhooks.store import dispatch as webhook_dispatch
from orchestrator.webhooks.store import webhooks
from orchestrator.webhooks.store.attempts import WebhookCounts
from orchestrator.webhooks.store.deliveries import Delivery
from orchestrator.webhooks.store.dispatch import PendingWork
from orchestrator.webhooks.store.webhooks import Webhook


async def find_webhook(database: Database, tenant_id: UUID | None, webhook_id: UUID) -> Webhook:
    """Return a webhook of the tenant, or of the operators (`tenant_id` None). Raises `NotFound`."""
    async with database.read_one() as reading:
        return await webhooks.read_webhook(reading, tenant_id, webhook_id)


async def list_webhooks(database: Database, tenant_id: UUID | None, *, after: UUID, limit: int) -> list[Webhook]:
    """Return the webhooks of the tenant, or of the operators, in creation order."""
    async with database.read_one() as reading:
        return await webhooks.list_webhooks(reading, tenant_id, after, limit)


async def list_deliveries(
    database: Database, tenant_id: UUID | None, webhook_id: UUID, *, state: str | None, before: int, limit: int
) -> list[Delivery]:
    """Return the webhook's deliveries, newest first. Raises `NotFound`."""
    async with database.reading() as reading:
        await webhooks.read_webhook(reading, tenant_id, webhook_id)
        return await webhook_deliveries.list_deliveries(reading, webhook_id, state=state, before=before, limit=limit)


async def find_delivery(database: Database, tenant_id: UUID | None, webhook_id: UUID, number: int) -> Delivery:
    """Return one delivery of the webhook. Raises `NotFound`."""
    async with database.reading() as reading:
        await webhooks.read_webhook(reading, tenant_id, webhook_id)
        return await webhook_deliveries.read_delivery(reading, webhook_id, number)


async def count_webhooks(database: Database) -> WebhookCounts:
    """Return counts over all webhooks, for metrics."""
    async with database.read_one() as reading:
        return await webhook_attempts.count_webhooks(reading)


async def find_work(database: Database) -> PendingWork:
    """Return whether a dispatcher has events to enqueue or deliveries to send."""
    async with database.read_one() as reading:
        return await webhook_dispatch.read_work(reading)
