"""Take from a tenant's balance what was given by mistake or is paid back, and say why."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.paying import Payment, write_payment


async def withdraw_from_balance(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, *, amount: int, reference: str
) -> Answer:
    """201 with the ledger's line. It may leave less than nothing, because what was given by mistake may be used already.

    Refusals: `NotFound`, `BalanceOutOfBounds`. Raises `OperationConflict` where the key made another payment, however long ago.
    """

    async def effect(tx: Transaction) -> Done:
        payment = Payment(tenant_id, "withdrawal", amount, reference)
        return Done(201, await write_payment(tx, payment, actor, operation.key, operation.request_id), tenant_id)

    return await run_once(context, operation, effect, None)
