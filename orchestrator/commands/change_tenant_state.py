"""Suspend a tenant, or let it go on."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, tenants
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def change_tenant_state(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, *, state: str
) -> Answer:
    """200 with the tenant; a suspended tenant's keys are refused, what it runs goes on."""

    async def effect(tx: Transaction) -> Done:
        tenant = await tenants.set_tenant_state(tx, tenant_id, state)
        await audit.record(
            tx, actor, "tenant.change_state", f"tenants/{tenant_id}", {"state": state}, operation.request_id
        )
        return Done(200, asdict(tenant), tenant_id)

    return await run_once(context, operation, effect, None)
