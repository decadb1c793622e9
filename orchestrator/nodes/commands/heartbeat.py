"""Record a node's heartbeat and the inventory that it reports."""

from __future__ import annotations

import json
import uuid
from uuid import UUID, uuid4

from node_agent.protocol import Heartbeat, HeartbeatAnswer
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.store.inventories import keep_inventory
from orchestrator.nodes.store.silence import mark_offline_if_silent
from orchestrator.operations.execution import Context, json_value, transact
from orchestrator.tasks.store.dispatch import note_heartbeat


async def record_heartbeat(context: Context, node_id: UUID, heartbeat: Heartbeat) -> HeartbeatAnswer:
    """The node is online from now on; if it was not, an event says so. A complete inventory is kept for the reconciler."""
    held = json.dumps([str(allocation) for allocation in heartbeat.allocations])
    async with context.database.transaction() as tx:
        seen = await note_heartbeat(tx, node_id, heartbeat.agent_version, held)
        if heartbeat.inventory is not None:
            await keep_inventory(tx, node_id, heartbeat.inventory)
        if not seen.was_online:
            payload = {"node_id": str(node_id), "name": seen.name}
            await append_event(tx, Event(EventType.NODE_ONLINE, f"nodes/{node_id}", uuid.uuid4(), None, payload))
    return HeartbeatAnswer(server_time=seen.now, node_state=seen.state)


async def mark_node_offline(context: Context, node_id: UUID, silent_seconds: float) -> bool:
    """Mark it offline and tell so, if it is silent still, judged after its lock; answers whether it was."""

    async def work(tx: Transaction) -> bool:
        marked = await mark_offline_if_silent(tx, node_id, silent_seconds)
        if marked is None:
            return False
        payload = {"node_id": str(node_id), "name": marked.name, "last_seen_at": json_value(marked.last_seen_at)}
        event = Event(EventType.NODE_OFFLINE, f"nodes/{node_id}", uuid4(), None, payload)
        await append_event(tx, event)
        return True

    return await transact(context, work)
