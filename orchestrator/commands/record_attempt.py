"""Write down what an attempt to deliver came to, and what follows: nothing, another attempt, or the webhook's end."""

from __future__ import annotations

import uuid

from orchestrator.domain.events import Event, EventType
from orchestrator.domain.webhooks import Attempt
from orchestrator.execution import Context, transact
from orchestrator.store.database import Transaction
from orchestrator.store.outbox import append_event
from orchestrator.store.webhook_dispatch import Claim, disable, note_failure, note_success
from orchestrator.store.webhooks import fail_pending


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
