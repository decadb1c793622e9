"""Decide whether a tenant is prepaid, and below what its balance is low."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.balance_refusals import BalanceInsufficient
from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit
from orchestrator.store.balance_judging import judge_balance
from orchestrator.store.balances import lock_balance, read_standing, set_policy
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.tenants import read_tenant


async def set_balance_policy(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, *, prepaid: bool, low_threshold: int | None
) -> Answer:
    """200 with the balance. A tenant that is no longer prepaid is not released by billing any more, and may begin again.

    Refusals: `NotFound`; `BalanceInsufficient` for one that holds GPUs and has nothing left: it is topped up first.
    """

    async def effect(tx: Transaction) -> Done:
        await lock_balance(tx, tenant_id)
        before = await read_standing(tx, tenant_id)
        if (
            prepaid
            and not before.prepaid
            and before.available <= 0
            and (await read_tenant(tx, tenant_id)).gpus_used > 0
        ):
            raise BalanceInsufficient(
                "it holds GPUs that would be released at once; top it up first", available_micro_units=before.available
            )
        await set_policy(tx, tenant_id, prepaid=prepaid, low_threshold=low_threshold)
        standing, _ = await judge_balance(tx, tenant_id)
        detail = {"prepaid": prepaid, "low_threshold_micro_units": low_threshold}
        await audit.record(tx, actor, "balance.set_policy", f"tenants/{tenant_id}", detail, operation.request_id)
        return Done(200, standing.document(), tenant_id)

    return await run_once(context, operation, effect, None)
