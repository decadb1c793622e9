"""Change what an operator declared of a node: its address, and how many of its slots lie in the first NUMA half."""

from __future__ import annotations

from uuid import UUID

from node_agent.wire.layout import layout_of
from node_agent.wire.topology import Topology
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.refusals import TopologyMisfit
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import nodes, topologies
from orchestrator.nodes.store.nodes import Node
from orchestrator.nodes.store.updates import NodeChanges, apply_changes
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import Invalid, InvalidState
from orchestrator.tenants.principals import Actor


async def update_node(
    context: Context, operation: Operation, actor: Actor, named: UUID | str, changes: NodeChanges
) -> Answer:
    """200 with the node of this id or name. Equal values change nothing and emit no event; what is placed on the node stays.

    Refusals: `NotFound`; `InvalidState` for a retired node; `Invalid` for a half that is larger than the node;
    `TopologyMisfit` for one that the approved topology contradicts.
    """

    async def effect(tx: Transaction) -> Done:
        node_id = named if isinstance(named, UUID) else (await nodes.read_node_by_name(tx, named)).id
        state = await nodes.lock_node(tx, node_id)
        if state is NodeState.RETIRED:
            raise InvalidState("the node is retired; its record is final", state=state)
        node = await nodes.read_node(tx, node_id)
        if changes.half_slots is not None:
            await _require_possible(tx, node, changes.half_slots)
        changed = await apply_changes(tx, node, changes, operation)
        after = await nodes.read_node(tx, node_id)
        detail = {"changed": changed, "address": after.address, "half_slots": after.half_slots}
        await audit.record(tx, actor, "node.update", f"nodes/{node_id}", detail, operation.request_id)
        return Done(200, await nodes.node_document(tx, after), node_id)

    return await run_once(context, operation, effect, None)


async def _require_possible(tx: Transaction, node: Node, half_slots: int) -> None:
    if half_slots > node.slot_count:
        message = "half_slots must not be larger than slot_count"
        raise Invalid(message, errors=[{"field": "half_slots", "message": message}])
    known = await topologies.read_topology(tx, node.id)
    if known is None or known.approved is None:
        return
    layout = layout_of(Topology.model_validate(known.approved))
    if layout is not None and layout.half_slots not in (None, half_slots):
        raise TopologyMisfit(f"by the approved topology {layout.half_slots} slots lie in the first NUMA half")
