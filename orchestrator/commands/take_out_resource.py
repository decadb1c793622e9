"""Take a registered resource out of service: nobody new gets it."""

from __future__ import annotations

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.resource_service import change_service


async def take_out_resource(
    context: Context, operation: Operation, actor: Actor, resource_id: str, *, reason: str
) -> Answer:
    """200 with the resource; who holds it keeps it, new holds are refused with the reason.

    Repeating it changes nothing; another reason takes the place of the first. Refusal: `ResourceNotFound`.
    """

    async def effect(tx: Transaction) -> Done:
        return Done(200, await change_service(tx, resource_id, reason, actor, operation))

    return await run_once(context, operation, effect, None)
