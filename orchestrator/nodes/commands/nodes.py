"""Register a node: its slots get their unit numbers, and its agent may be given a token to enrol with."""

from __future__ import annotations

from uuid import UUID, uuid4

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.states import NodeChange, NodeState
from orchestrator.nodes.store import certificates as node_certificates
from orchestrator.nodes.store import nodes
from orchestrator.nodes.store.open_claims import require_no_open_claims
from orchestrator.nodes.store.steering import change_node
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Actor


async def create_node(
    context: Context,
    operation: Operation,
    actor: Actor,
    *,
    name: str,
    region: str,
    gpu_model: str,
    shape: str,
    slot_count: int | None,
    half_slots: int | None,
    address: str | None,
    faults: dict[str, str],
) -> Answer:
    """201 with the node, `registered`. Without `half_slots` the first NUMA half gets half of the slots, rounded up.

    Without `slot_count` it has no slot until its topology is approved.
    """
    count = slot_count or 0
    half = half_slots if half_slots is not None else (count + 1) // 2

    async def effect(tx: Transaction) -> Done:
        node = await nodes.insert_node(
            tx,
            name=name,
            region=region,
            gpu_model=gpu_model,
            shape=shape,
            slot_count=count,
            half_slots=half,
            address=address,
            faults=faults,
        )
        described: JsonObject = {
            "name": name, "region": region, "gpu_model": gpu_model, "shape": shape, "slot_count": count,
        }  # fmt: skip
        await append_event(
            tx,
            Event(
                EventType.NODE_REGISTERED,
                subject=f"nodes/{node.id}",
                correlation_id=uuid4(),
                tenant_id=None,
                payload={"node_id": node.id, **described},
                operation_key=operation.key,
                request_id=operation.request_id,
            ),
        )
        detail = {**described, "half_slots": half, "address": address, "faults": faults}
        await audit.record(tx, actor, "node.create", f"nodes/{node.id}", detail, operation.request_id)
        return Done(201, await nodes.node_document(tx, node), node.id)

    return await run_once(context, operation, effect, None)


async def cordon_node(context: Context, operation: Operation, actor: Actor, node_id: UUID) -> Answer:
    """200 with the node, cordoned; what runs on it goes on.

    A draining node stays draining. Repeating it changes nothing.
    """

    async def effect(tx: Transaction) -> Done:
        document = await change_node(tx, node_id, NodeChange.CORDON, EventType.NODE_CORDONED, actor, operation)
        return Done(200, document, node_id)

    return await run_once(context, operation, effect, None)


async def retire_node(context: Context, operation: Operation, actor: Actor, node_id: UUID, *, reason: str) -> Answer:
    """200 with the node, retired: nothing is placed on it any more and its agent's certificates are refused.

    Repeating it changes nothing. Refusals: `NotFound`; `NodeInUse` while claims are open on it, naming them.
    """

    async def effect(tx: Transaction) -> Done:
        if await nodes.lock_node(tx, node_id) is not NodeState.RETIRED:
            await require_no_open_claims(tx, node_id)
            await node_certificates.revoke_certificates(tx, node_id, f"retired: {reason}")
            await nodes.set_node_offline(tx, node_id)
        document = await change_node(
            tx, node_id, NodeChange.RETIRE, EventType.NODE_RETIRED, actor, operation, reason=reason
        )
        return Done(200, document, node_id)

    return await run_once(context, operation, effect, None)
