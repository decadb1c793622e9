"""A prepaid balance is looked at: is it low, is it used up (docs/reference/billing.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.releasing import ReleaseOrder, order_release
from orchestrator.audit import store as audit
from orchestrator.billing.rules import BalanceInsufficient, Judgement
from orchestrator.billing.store.balances import is_depleted, lock_balance, read_standing, set_policy
from orchestrator.billing.store.evaluation import judge_balance
from orchestrator.billing.store.payments import Payment, write_payment
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Actor, ActorKind
from orchestrator.tenants.store.tenants import read_tenant


async def look_at_balance(context: Context, tenant_id: UUID) -> Judgement:
    """What is found, judged and told under its lock; whoever looks at the same moment finds nothing new.

    Raises `NotFound`.
    """

    async def work(tx: Transaction) -> Judgement:
        await lock_balance(tx, tenant_id)
        _, judgement = await judge_balance(tx, tenant_id)
        return judgement

    return await transact(context, work)


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


RELEASE_REASON = "balance_depleted"
_BILLING = Actor(ActorKind.BILLING, RELEASE_REASON)


async def release_for_billing(context: Context, allocation_id: UUID) -> bool:
    """Release an active allocation whose tenant's balance is depleted, evaluated under both locks; return whether it was.

    The release is audited. A top-up that was committed before prevents it. An allocation that is not active yet is released
    once it is.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None or subject.state is not AllocationState.ACTIVE:
            return False
        if not await is_depleted(tx, subject.tenant_id):
            return False
        order = ReleaseOrder(RELEASE_REASON, context.limits.requested_seconds_max)
        await order_release(tx, subject, order, _BILLING)
        await audit.record(tx, _BILLING, "allocation.release", subject.name, {"tenant_id": subject.tenant_id}, None)
        return True

    return await transact(context, work)
