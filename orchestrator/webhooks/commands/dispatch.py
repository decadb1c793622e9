"""The dispatcher's commands: enqueue deliveries, lease due ones, record attempts, sweep old ones."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.execution import Context, transact
from orchestrator.webhooks.rules import Attempt
from orchestrator.webhooks.store import deliveries as webhook_deliveries
from orchestrator.webhooks.store.attempts import disable, lock_expired, record_failure, record_success
from orchestrator.webhooks.store.dispatch import (
    Advance,
    InFlight,
    LeasedDelivery,
    advance,
    lease,
)
from orchestrator.webhooks.store.webhooks import fail_pending


async def lease_deliveries(
    context: Context,
    in_flight: Sequence[InFlight],
    *,
    limit: int,
    webhook_max: int,
    tenant_max: int,
    lease_seconds: float,
) -> list[LeasedDelivery]:
    """Lease due deliveries for `lease_seconds`; a delivery without a recorded attempt by then is leased again."""

    async def effect(tx: Transaction) -> list[LeasedDelivery]:
        return await lease(
            tx, in_flight, limit=limit, webhook_max=webhook_max, tenant_max=tenant_max, lease_seconds=lease_seconds
        )

    return await transact(context, effect)


async def enqueue_deliveries(context: Context, *, batch: int, pending_max: int, webhooks_max: int) -> Advance:
    """Advance webhooks and enqueue their deliveries in one transaction, so no event is skipped or enqueued twice."""

    async def effect(tx: Transaction) -> Advance:
        return await advance(tx, batch=batch, pending_max=pending_max, webhooks_max=webhooks_max)

    return await transact(context, effect)


async def record_attempt(
    context: Context,
    delivery: LeasedDelivery,
    attempt: Attempt,
    *,
    pause_seconds: float | None,
    failing_seconds_max: float,
) -> str | None:
    """Record an attempt; return why it disabled the webhook: `gone` (410), or `failing` for `failing_seconds_max`, or None.

    An attempt whose lease has passed to another dispatcher changes nothing.
    """

    async def effect(tx: Transaction) -> str | None:
        if attempt.succeeded:
            await record_success(tx, delivery, attempt)
            return None
        pause = None if attempt.is_gone else pause_seconds
        recorded, too_long = await record_failure(tx, delivery, attempt, pause, failing_seconds_max)
        reason = "gone" if attempt.is_gone else "failing" if too_long else None
        if not recorded or reason is None:
            return None
        return reason if await _disable(tx, delivery.webhook_id, delivery.tenant_id, reason) else None

    return await transact(context, effect)


async def disable_expired_webhooks(context: Context, limit: int) -> int:
    """Disable at most `limit` operators' webhooks whose key has expired (`key_expired`), each with its event; return how many."""

    async def effect(tx: Transaction) -> int:
        expired = await lock_expired(tx, limit)
        for webhook_id in expired:
            await _disable(tx, webhook_id, None, "key_expired")
        return len(expired)

    return await transact(context, effect)


async def _disable(tx: Transaction, webhook_id: UUID, tenant_id: UUID | None, reason: str) -> bool:
    """Disable a webhook, fail what waits, and append the event; False if it is disabled already."""
    if not await disable(tx, webhook_id, reason):
        return False
    await fail_pending(tx, webhook_id)
    payload = {"webhook_id": webhook_id, "reason": reason}
    await append_event(
        tx, Event(EventType.WEBHOOK_DISABLED, f"webhooks/{webhook_id}", uuid.uuid4(), tenant_id, payload)
    )
    return True


async def sweep_deliveries(context: Context, *, seconds: float, kept: int, limit: int) -> int:
    """Delete ended deliveries older than `seconds` or beyond the newest `kept` of their webhook; return how many."""

    async def effect(tx: Transaction) -> int:
        return await webhook_deliveries.sweep_deliveries(tx, seconds=seconds, kept=kept, limit=limit)

    return await transact(context, effect)
