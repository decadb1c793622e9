"""Give to a tenant's balance."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.paying import Payment, write_payment


async def top_up_balance(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, *, amount: int, reference: str | None
) -> Answer:
    """201 with the ledger's line. What was used up may begin again if anything is left now, and is not released any more.

    Refusals: `NotFound`, `BalanceOutOfBounds`. Raises `OperationConflict` where the key made another payment, however long ago.
    """

    async def effect(tx: Transaction) -> Done:
        payment = Payment(tenant_id, "top_up", amount, reference)
        return Done(201, await write_payment(tx, payment, actor, operation.key, operation.request_id), tenant_id)

    return await run_once(context, operation, effect, None)
