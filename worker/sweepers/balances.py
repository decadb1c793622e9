"""Evaluates prepaid balances that may have dropped; billing releases the allocations of a tenant with none left."""

from __future__ import annotations

from uuid import UUID

import structlog

from orchestrator.billing.commands import evaluate_balance, release_for_billing
from orchestrator.billing.queries import find_due_balances, find_late_seconds, find_running_allocations
from orchestrator.operations.execution import Context
from worker.metrics import BALANCE_EVENTS, BALANCES_LATE_SECONDS
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()

BATCHES_MAX = 10


async def sweep_balances(context: Context, limit: int) -> None:
    """Evaluate at most ten batches of `limit` balances, the most overdue first; release at most `limit` allocations a tenant.

    A tenant with more allocations is due again a second later, after the tenants that were due before.
    """
    for _ in range(BATCHES_MAX):
        due = await find_due_balances(context, limit)
        for tenant_id in due:
            with isolate_failure("balances", tenant_id=str(tenant_id)):
                await _evaluate(context, tenant_id, limit)
        if len(due) < limit:
            break
    BALANCES_LATE_SECONDS.set(max(0.0, await find_late_seconds(context)))


async def _evaluate(context: Context, tenant_id: UUID, limit: int) -> None:
    evaluation = await evaluate_balance(context, tenant_id)
    SWEPT.labels("balance").inc()
    for kind, announced in (("low", evaluation.emit_low), ("depleted", evaluation.emit_depleted)):
        if announced:
            BALANCE_EVENTS.labels(kind).inc()
            log.info(f"balance_{kind}", tenant_id=str(tenant_id))
    if evaluation.depleted:
        await _release(context, tenant_id, limit)


async def _release(context: Context, tenant_id: UUID, limit: int) -> None:
    for allocation_id in await find_running_allocations(context, tenant_id, limit):
        with isolate_failure("balances", tenant_id=str(tenant_id), allocation_id=str(allocation_id)):
            if await release_for_billing(context, allocation_id):
                SWEPT.labels("allocation_of_depleted").inc()
                log.info("released_by_billing", tenant_id=str(tenant_id), allocation_id=str(allocation_id))
