"""Note that a node lives, and what it says it holds."""

from __future__ import annotations

import json
import uuid
from uuid import UUID

from node_agent.protocol import Heartbeat, HeartbeatAnswer
from orchestrator.domain.events import Event, EventType
from orchestrator.execution import Context
from orchestrator.store.dispatch import note_heartbeat
from orchestrator.store.inventories import keep_inventory
from orchestrator.store.outbox import append_event


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
