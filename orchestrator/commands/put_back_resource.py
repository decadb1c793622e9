"""Put a registered resource back into service."""

from __future__ import annotations

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.resource_service import change_service


async def put_back_resource(context: Context, operation: Operation, actor: Actor, resource_id: str) -> Answer:
    """200 with the resource, which can be held again. Repeating it changes nothing. Refusal: `ResourceNotFound`."""

    async def effect(tx: Transaction) -> Done:
        return Done(200, await change_service(tx, resource_id, None, actor, operation))

    return await run_once(context, operation, effect, None)
