"""A prepaid balance is looked at: is it low, is it used up (docs/billing.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.balances import Judgement
from orchestrator.execution import Context, transact
from orchestrator.store.balance_judging import judge_balance
from orchestrator.store.balances import lock_balance
from orchestrator.store.database import Transaction


async def look_at_balance(context: Context, tenant_id: UUID) -> Judgement:
    """What is found, judged and told under its lock; whoever looks at the same moment finds nothing new.

    Raises `NotFound`.
    """

    async def work(tx: Transaction) -> Judgement:
        await lock_balance(tx, tenant_id)
        _, judgement = await judge_balance(tx, tenant_id)
        return judgement

    return await transact(context, work)
