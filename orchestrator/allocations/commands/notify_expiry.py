"""Notification that an allocation is about to end: event `reservation.ending`, once (docs/reference/events.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.due import note_notified_if_ending
from orchestrator.allocations.store.timeline import note
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.execution import Context, transact
from orchestrator.tenants.principals import Actor, ActorKind
from orchestrator.times import rfc3339

NOTE = "ending"


async def notify_expiry(context: Context, allocation_id: UUID) -> bool:
    """Emit the event if the end is within the notice and not past, evaluated after the locks; return whether it did."""

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None or not await note_notified_if_ending(tx, subject.id, context.limits.ending_notice_seconds):
            return False
        ends_at = rfc3339(subject.ends_at)
        await note(
            tx, subject.id, Actor(ActorKind.SYSTEM, "ends_at"), NOTE, f"the allocation ends at {ends_at}", subject.fence
        )
        payload = {
            "allocation_id": str(subject.id),
            "reservation_id": None if subject.reservation_id is None else str(subject.reservation_id),
            "ends_at": ends_at,
            "judged_at": rfc3339(subject.clock),
        }
        event = Event(EventType.RESERVATION_ENDING, subject.name, subject.correlation_id, subject.tenant_id, payload)
        await append_event(tx, event)
        return True

    return await transact(context, work)
