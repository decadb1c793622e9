"""Prepaid balances that are to be looked at; what a tenant runs whose balance is used up is released by billing."""

from __future__ import annotations

from uuid import UUID

import structlog

from orchestrator.billing.commands import look_at_balance, release_for_billing
from orchestrator.billing.queries import find_due_balances, find_late_seconds, find_running_allocations
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from worker.metrics import BALANCE_EVENTS, BALANCES_LATE_SECONDS, SWEEP_FAILURES, SWEPT

log = structlog.get_logger()

BATCHES_MAX = 10


async def sweep_balances(context: Context, limit: int) -> None:
    """Look at a bounded number, `limit` at a time, the most overdue first; release at most `limit` of each tenant's.

    What is left over is due again a second later, behind whoever was due before.
    """
    for _ in range(BATCHES_MAX):
        due = await find_due_balances(context, limit)
        for tenant_id in due:
            try:
                await _look(context, tenant_id, limit)
            except Problem as problem:
                SWEEP_FAILURES.labels("balance").inc()
                log.warning("balance_not_looked_at", tenant_id=str(tenant_id), why=str(problem))
        if len(due) < limit:
            break
    BALANCES_LATE_SECONDS.set(max(0.0, await find_late_seconds(context)))


async def _look(context: Context, tenant_id: UUID, limit: int) -> None:
    judgement = await look_at_balance(context, tenant_id)
    SWEPT.labels("balance").inc()
    for word, told in (("low", judgement.tell_low), ("depleted", judgement.tell_depleted)):
        if told:
            BALANCE_EVENTS.labels(word).inc()
            log.info(f"balance_{word}", tenant_id=str(tenant_id))
    if judgement.depleted:
        await _release(context, tenant_id, limit)


async def _release(context: Context, tenant_id: UUID, limit: int) -> None:
    """One that cannot be released now hides none of the others."""
    for allocation_id in await find_running_allocations(context, tenant_id, limit):
        try:
            if await release_for_billing(context, allocation_id):
                SWEPT.labels("allocation_of_depleted").inc()
                log.info("released_by_billing", tenant_id=str(tenant_id), allocation_id=str(allocation_id))
        except Problem as problem:
            SWEEP_FAILURES.labels("allocation_of_depleted").inc()
            log.warning("release_by_billing_failed", allocation_id=str(allocation_id), why=str(problem))
