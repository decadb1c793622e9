"""Place on a node again."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.events import EventType
from orchestrator.domain.node_changes import NodeChange
from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store.database import Transaction
from orchestrator.store.node_steering import change_node
from orchestrator.store.operations import Answer, Operation


async def uncordon_node(context: Context, operation: Operation, actor: Actor, node_id: UUID) -> Answer:
    """200 with the node, active. Repeating it changes nothing."""

    async def effect(tx: Transaction) -> Done:
        document = await change_node(tx, node_id, NodeChange.UNCORDON, EventType.NODE_UNCORDONED, actor, operation)
        return Done(200, document, node_id)

    return await run_once(context, operation, effect, None)
