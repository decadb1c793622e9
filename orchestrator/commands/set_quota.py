"""Limit the GPUs that a tenant may hold."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, tenants
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def set_quota(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, *, gpus_limit: int | None
) -> Answer:
    """200 with the tenant. A limit below what it holds takes nothing away; it only refuses more. None: no limit."""

    async def effect(tx: Transaction) -> Done:
        tenant = await tenants.set_gpus_limit(tx, tenant_id, gpus_limit)
        await audit.record(
            tx, actor, "tenant.set_quota", f"tenants/{tenant_id}", {"gpus_limit": gpus_limit}, operation.request_id
        )
        return Done(200, asdict(tenant), tenant_id)

    return await run_once(context, operation, effect, None)
