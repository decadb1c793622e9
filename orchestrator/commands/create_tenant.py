"""Create a tenant."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, tenants
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def create_tenant(
    context: Context, operation: Operation, actor: Actor, *, name: str, gpus_limit: int | None
) -> Answer:
    """201 with the tenant and its quota; 409 `already_exists` if the name is taken."""

    async def effect(tx: Transaction) -> Done:
        tenant = await tenants.insert_tenant(tx, name, gpus_limit)
        detail = {"name": name, "gpus_limit": gpus_limit}
        await audit.record(tx, actor, "tenant.create", f"tenants/{tenant.id}", detail, operation.request_id)
        return Done(201, asdict(tenant), tenant.id)

    return await run_once(context, operation, effect, None)
