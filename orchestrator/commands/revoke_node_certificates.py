"""Refuse every certificate of a node from now on; it must enrol again."""

from __future__ import annotations

from uuid import UUID, uuid4

from orchestrator.domain.events import Event, EventType
from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, node_certificates, nodes
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.outbox import append_event


async def revoke_node_certificates(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, *, reason: str
) -> Answer:
    """200 with the node, which counts as offline until it is heard of again."""

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        revoked = await node_certificates.revoke_certificates(tx, node_id, reason)
        await nodes.set_node_offline(tx, node_id)
        payload = {"node_id": node_id, "reason": reason, "certificates": revoked}
        await append_event(
            tx,
            Event(
                EventType.NODE_CERTIFICATES_REVOKED,
                subject=f"nodes/{node_id}",
                correlation_id=uuid4(),
                tenant_id=None,
                payload=payload,
                operation_key=operation.key,
                request_id=operation.request_id,
            ),
        )
        await audit.record(
            tx, actor, "node.revoke_certificates", f"nodes/{node_id}",
            {"reason": reason, "certificates": revoked}, operation.request_id,
        )  # fmt: skip
        return Done(200, await nodes.node_document(tx, await nodes.read_node(tx, node_id)), node_id)

    return await run_once(context, operation, effect, None)
