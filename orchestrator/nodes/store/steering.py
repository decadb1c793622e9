"""The one door through which operators change a node's state: row lock, state, event and audit together."""

from __future__ import annotations

from uuid import UUID, uuid4

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.states import NodeChange, state_after
from orchestrator.nodes.store import nodes
from orchestrator.operations.store.operations import Operation
from orchestrator.tenants.principals import Actor


async def change_node(
    tx: Transaction,
    node_id: UUID,
    change: NodeChange,
    event: EventType,
    actor: Actor,
    operation: Operation,
    *,
    announced: bool = False,
    **said: str,
) -> JsonObject:
    """The node after the change, as clients see it. A repetition is audited, but changes nothing and emits no event.

    `announced`: emit one all the same, because something else of the node changes with it. `said` is stored in event and audit.

    Raises `NotFound`, or `InvalidState` if a node in this state does not take the change.
    """
    before = await nodes.lock_node(tx, node_id)
    after = state_after(change, before)
    if after is not before:
        await nodes.set_node_state(tx, node_id, after)
    if after is not before or announced:
        payload = {"node_id": node_id, "from": before.value, "to": after.value, **said}
        await append_event(
            tx, Event(event, f"nodes/{node_id}", uuid4(), None, payload, operation.key, operation.request_id)
        )
    detail = {"from": before.value, "to": after.value, **said}
    await audit.record(tx, actor, f"node.{change.value}", f"nodes/{node_id}", detail, operation.request_id)
    return await nodes.node_document(tx, await nodes.read_node(tx, node_id))
