"""Register a node: its slots get their unit numbers, and its agent may be given a token to enrol with."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from orchestrator.domain.events import Event, EventType
from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, nodes
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.outbox import append_event


async def create_node(
    context: Context,
    operation: Operation,
    actor: Actor,
    *,
    name: str,
    region: str,
    gpu_model: str,
    shape: str,
    slot_count: int,
    half_slots: int | None,
    address: str | None,
    faults: dict[str, str],
) -> Answer:
    """201 with the node, `registered`. Without `half_slots` the first NUMA half gets half of the slots, rounded up."""
    half = half_slots if half_slots is not None else (slot_count + 1) // 2

    async def effect(tx: Transaction) -> Done:
        node = await nodes.insert_node(
            tx,
            name=name,
            region=region,
            gpu_model=gpu_model,
            shape=shape,
            slot_count=slot_count,
            half_slots=half,
            address=address,
            faults=faults,
        )
        told: dict[str, Any] = {
            "name": name, "region": region, "gpu_model": gpu_model, "shape": shape, "slot_count": slot_count,
        }  # fmt: skip
        await append_event(
            tx,
            Event(
                EventType.NODE_REGISTERED,
                subject=f"nodes/{node.id}",
                correlation_id=uuid4(),
                tenant_id=None,
                payload={"node_id": node.id, **told},
                operation_key=operation.key,
                request_id=operation.request_id,
            ),
        )
        detail = {**told, "half_slots": half, "address": address, "faults": faults}
        await audit.record(tx, actor, "node.create", f"nodes/{node.id}", detail, operation.request_id)
        return Done(201, await nodes.node_document(tx, node), node.id)

    return await run_once(context, operation, effect, None)
