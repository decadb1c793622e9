"""Record which BMCs answer; a node without an agent is online as long as its BMC does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID, uuid4

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.store import nodes
from orchestrator.operations.execution import Context, json_value, transact
from orchestrator.sites.store import liveness


async def note_answers(
    context: Context, agent_id: UUID, serial: str, run_id: UUID, lease_fence: int, listed_at: datetime,
    answered: Sequence[UUID],
    silent: Mapping[UUID, str],
) -> bool:  # fmt: skip
    """Record a page of a round, but for BMCs that were changed since it was listed.

    False, and nothing is recorded, if the caller does not hold the lease that it named.
    """
    async with context.database.autocommit() as tx:
        return await liveness.note_answers(tx, agent_id, serial, run_id, lease_fence, listed_at, answered, silent)


async def turn_node(context: Context, node_id: UUID, silent_seconds: float) -> bool | None:
    """Whether a node without an agent is online from now on, evaluated after its lock, with an event; None: as it was.

    What runs on the machine is not judged: a BMC that is silent says nothing about it.
    """

    async def work(tx: Transaction) -> bool | None:
        await nodes.lock_node(tx, node_id)
        turned = await liveness.turn(tx, node_id, silent_seconds)
        if turned is None:
            return None
        payload: JsonObject = {"node_id": str(node_id), "name": turned.name}
        if not turned.is_online:
            payload["last_seen_at"] = json_value(turned.answered_at)
        happened = EventType.NODE_ONLINE if turned.is_online else EventType.NODE_OFFLINE
        await append_event(tx, Event(happened, f"nodes/{node_id}", uuid4(), None, payload))
        return turned.is_online

    return await transact(context, work)
