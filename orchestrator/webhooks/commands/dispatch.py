"""Take attempts that are due, for a while."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.execution import Context, transact
from orchestrator.webhooks.rules import Attempt
from orchestrator.webhooks.store import deliveries as webhook_deliveries
from orchestrator.webhooks.store.dispatch import (
    Advance,
    Busy,
    Claim,
    advance,
    claim,
    disable,
    note_failure,
    note_success,
)
from orchestrator.webhooks.store.webhooks import fail_pending


async def claim_deliveries(
    context: Context, busy: Sequence[Busy], *, limit: int, webhook_max: int, tenant_max: int, lease_seconds: float
) -> list[Claim]:
    """No attempt is taken twice until `lease_seconds` are over; one that nobody reported by then is taken again."""

    async def effect(tx: Transaction) -> list[Claim]:
        return await claim(
            tx, busy, limit=limit, webhook_max=webhook_max, tenant_max=tenant_max, lease_seconds=lease_seconds
        )

    return await transact(context, effect)


async def enqueue_deliveries(context: Context, *, batch: int, pending_max: int, webhooks_max: int) -> Advance:
    """Position and deliveries go together, so nothing is passed over and nothing written twice, however many are at it."""

    async def effect(tx: Transaction) -> Advance:
        return await advance(tx, batch=batch, pending_max=pending_max, webhooks_max=webhooks_max)

    return await transact(context, effect)


async def record_attempt(
    context: Context, claimed: Claim, attempt: Attempt, *, pause_seconds: float | None, failing_seconds_max: float
) -> str | None:
    """Why the webhook is disabled by this, if it is: `gone` (410), or `failing` for longer than `failing_seconds_max`.

    Whoever reports an attempt after its lease, when it is another's, changes nothing.
    """

    async def effect(tx: Transaction) -> str | None:
        if attempt.succeeded:
            await note_success(tx, claimed, attempt)
            return None
        pause = None if attempt.is_gone else pause_seconds
        told, too_long = await note_failure(tx, claimed, attempt, pause, failing_seconds_max)
        reason = "gone" if attempt.is_gone else "failing" if too_long else None
        if not told or reason is None or not await disable(tx, claimed.webhook_id, reason):
            return None
        await fail_pending(tx, claimed.webhook_id)
        payload = {"webhook_id": claimed.webhook_id, "reason": reason}
        subject = f"webhooks/{claimed.webhook_id}"
        await append_event(tx, Event(EventType.WEBHOOK_DISABLED, subject, uuid.uuid4(), claimed.tenant_id, payload))
        return reason

    return await transact(context, effect)


async def sweep_deliveries(context: Context, *, seconds: float, kept: int, limit: int) -> int:
    """How many of those that ended are forgotten: older than `seconds`, or beyond the newest `kept` of their webhook."""

    async def effect(tx: Transaction) -> int:
        return await webhook_deliveries.sweep_deliveries(tx, seconds=seconds, kept=kept, limit=limit)

    return await transact(context, effect)
