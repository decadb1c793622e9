"""Discover nodes, approve what was found, and take what differs from it out of service."""

from __future__ import annotations

from uuid import UUID

import structlog
from pydantic import ValidationError

from node_agent.wire.fields import first_error
from node_agent.wire.layout import Layout, layout_of
from node_agent.wire.topology import Topology
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.refusals import TopologyChanged, TopologyMisfit
from orchestrator.nodes.store import nodes, topologies
from orchestrator.nodes.store.nodes import Node
from orchestrator.nodes.store.topologies import EndedDiscovery
from orchestrator.nodes.store.updates import NodeChanges, apply_changes
from orchestrator.nodes.topology.documents import topology_document
from orchestrator.nodes.topology.judging import Taken, approve, judge, place
from orchestrator.nodes.topology.rules import (
    RETRY_SECONDS,
    misfit,
)
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import NotFound
from orchestrator.tasks.states import TaskState
from orchestrator.tenants.principals import Actor

log = structlog.get_logger("discovery")


async def issue_discovery(context: Context, node_id: UUID, interval_seconds: float) -> UUID | None:
    """Issue the node's discovery if it is due, evaluated after the node's lock; return the task's id."""

    async def work(tx: Transaction) -> UUID | None:
        assert context.signer is not None, "only processes with a signing key issue tasks"
        await nodes.lock_node(tx, node_id)
        due = await topologies.read_due(tx, node_id)
        if due is None:
            return None
        return await topologies.issue_discovery(tx, context.signer, node_id, due, interval_seconds)

    return await transact(context, work)


async def take_discovery(context: Context, node_id: UUID) -> Taken | None:
    """Record the result of the node's ended discovery, evaluated after the node's lock; None if none has ended.

    The first topology is approved automatically if it equals what was declared. Later ones are compared with the approved one.
    """

    async def work(tx: Transaction) -> Taken | None:
        await nodes.lock_node(tx, node_id)
        ended = await topologies.read_ended(tx, node_id)
        return None if ended is None else await _take(tx, node_id, ended)

    return await transact(context, work)


async def _take(tx: Transaction, node_id: UUID, ended: EndedDiscovery) -> Taken:
    if ended.state is not TaskState.COMPLETED:
        await topologies.record_failure(tx, node_id, ended.failure or "its task is gone", RETRY_SECONDS)
        return Taken.FAILED
    try:
        found = Topology.model_validate(ended.result)
    except ValidationError as error:
        await topologies.record_failure(tx, node_id, f"the result is no topology: {first_error(error)}", RETRY_SECONDS)
        return Taken.FAILED
    await topologies.record_found(tx, node_id, found)
    return await judge(tx, node_id, ended.node_name, ended.profile, found)


def changes_of(node: Node, layout: Layout) -> NodeChanges:
    """What the approval of a topology with this layout changes of the node: its NUMA halves, and its slots if it has none."""
    if node.slot_count:
        return NodeChanges(half_slots=layout.half_slots)
    count = len(layout.addresses)
    return NodeChanges(slot_count=count, half_slots=layout.half_slots or (count + 1) // 2)


async def approve_topology(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, *, digest: str
) -> Answer:
    """200 with the topology, approved: differences end, and their slots serve again. Repeating it changes nothing.

    Where its GPUs lie in two NUMA halves, the node's slots lie so from then on. A node without slots gets one for each GPU.

    Refusals: `NotFound`; `TopologyChanged` if another one was found last; `TopologyMisfit` if it is not that of the node's
    slots; `GuestSizeMisfit` and `GuestSizeUnsupported` if a SKU of the node's pool states larger guests.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        node = await nodes.read_node(tx, node_id)
        known = await topologies.read_topology(tx, node_id)
        if known is None or known.found is None:
            raise NotFound(f"nothing was discovered of node {node.name} yet")
        if known.found_digest != digest:
            raise TopologyChanged.to(known.found_digest)
        found = Topology.model_validate(known.found)
        why = misfit(found, node.slot_count)
        if why is not None:
            raise TopologyMisfit(f"the topology cannot be approved: {why}")
        if known.approved_digest != digest:
            await approve(tx, node_id, node.name, found, actor, operation)
            layout = layout_of(found)
            assert layout is not None, "it fits the node"
            await apply_changes(tx, node, changes_of(node, layout), operation)
            await place(tx, node_id, found, found, len(layout.addresses))
        await audit.record(tx, actor, "node.approve", f"nodes/{node_id}", {"digest": digest}, operation.request_id)
        approved = await topologies.read_topology(tx, node_id)
        assert approved is not None, "it was there before"
        return Done(200, topology_document(approved), node_id)

    return await run_once(context, operation, effect, None)
