"""Billing commands: evaluate a balance, set its policy, top it up, withdraw from it (docs/reference/billing.md)."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.releasing import ReleaseOrder, order_release
from orchestrator.audit import store as audit
from orchestrator.billing.rules import BalanceInsufficient, Evaluation
from orchestrator.billing.store.balances import (
    evaluate_locked_balance,
    is_depleted,
    lock_balance,
    read_balance,
    set_policy,
)
from orchestrator.billing.store.payments import Payment, write_payment
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Actor, ActorKind
from orchestrator.tenants.store.tenants import read_tenant


async def evaluate_balance(context: Context, tenant_id: UUID) -> Evaluation:
    """Evaluate a balance under its lock and emit what is new, so that concurrent evaluations emit each event once.

    Raises `NotFound`.
    """

    async def work(tx: Transaction) -> Evaluation:
        await lock_balance(tx, tenant_id)
        _, evaluation = await evaluate_locked_balance(tx, tenant_id)
        return evaluation

    return await transact(context, work)


async def set_balance_policy(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, *, prepaid: bool, low_threshold: int | None
) -> Answer:
    """Set the policy; 200 with the balance. Billing does not release allocations of a tenant that is not prepaid.

    Refusals: `NotFound`; `BalanceInsufficient` if the tenant holds GPUs and has nothing left.
    """

    async def effect(tx: Transaction) -> Done:
        await lock_balance(tx, tenant_id)
        before = await read_balance(tx, tenant_id)
        if (
            prepaid
            and not before.prepaid
            and before.available <= 0
            and (await read_tenant(tx, tenant_id)).gpus_used > 0
        ):
            raise BalanceInsufficient(
                f"the tenant holds GPUs and has {before.available} micro-units left, so billing would release them at once; "
                "top up the balance first",
                available_micro_units=before.available,
            )
        await set_policy(tx, tenant_id, prepaid=prepaid, low_threshold=low_threshold)
        balance, _ = await evaluate_locked_balance(tx, tenant_id)
        detail = {"prepaid": prepaid, "low_threshold_micro_units": low_threshold}
        await audit.record(tx, actor, "balance.set_policy", f"tenants/{tenant_id}", detail, operation.request_id)
        return Done(200, balance.document(), tenant_id)

    return await run_once(context, operation, effect, None)


async def top_up_balance(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, *, amount: int, reference: str | None
) -> Answer:
    """Add to a balance; 201 with the ledger line. A positive balance allows creates again and stops releases by billing.

    Refusals: `NotFound`, `BalanceOutOfBounds`. Raises `OperationConflict` if the key made another payment, at any time.
    """

    async def effect(tx: Transaction) -> Done:
        payment = Payment(tenant_id, "top_up", amount, reference)
        line = await write_payment(tx, payment, actor, operation.key, operation.request_id)
        return Done(201, asdict(line), tenant_id)

    return await run_once(context, operation, effect, None)


async def withdraw_from_balance(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, *, amount: int, reference: str
) -> Answer:
    """Take from a balance; 201 with the ledger line. The balance may become negative: a mistaken top-up may be spent already.

    Refusals: `NotFound`, `BalanceOutOfBounds`. Raises `OperationConflict` if the key made another payment, at any time.
    """

    async def effect(tx: Transaction) -> Done:
        payment = Payment(tenant_id, "withdrawal", amount, reference)
        line = await write_payment(tx, payment, actor, operation.key, operation.request_id)
        return Done(201, asdict(line), tenant_id)

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
