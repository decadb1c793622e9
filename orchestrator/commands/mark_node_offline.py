"""A node that has not been heard of gets no new allocations until it is heard of again."""

from __future__ import annotations

from uuid import UUID, uuid4

from orchestrator.domain.events import Event, EventType
from orchestrator.execution import Context, json_value, transact
from orchestrator.store.database import Transaction
from orchestrator.store.outbox import append_event
from orchestrator.store.sweeping import mark_offline_if_silent


async def mark_node_offline(context: Context, node_id: UUID, silent_seconds: float) -> bool:
    """Mark it offline and tell so, if it is silent still, judged after its lock; answers whether it was."""

    async def work(tx: Transaction) -> bool:
        marked = await mark_offline_if_silent(tx, node_id, silent_seconds)
        if marked is None:
            return False
        payload = {"node_id": str(node_id), "name": marked["name"], "last_seen_at": json_value(marked["last_seen_at"])}
        event = Event(EventType.NODE_OFFLINE, f"nodes/{node_id}", uuid4(), None, payload)
        await append_event(tx, event)
        return True

    return await transact(context, work)
