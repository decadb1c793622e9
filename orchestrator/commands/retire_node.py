"""Take a node out of the fleet for good. Nothing is deleted: its history and its slots stay readable."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.events import EventType
from orchestrator.domain.node_changes import NodeChange
from orchestrator.domain.states import Actor, NodeState
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import node_certificates, nodes
from orchestrator.store.database import Transaction
from orchestrator.store.node_steering import change_node
from orchestrator.store.open_claims import require_no_open_claims
from orchestrator.store.operations import Answer, Operation


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
