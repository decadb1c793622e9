"""Create, change and delete a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from uuid import UUID, uuid4

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import NOOP, Answer, Operation
from orchestrator.tenants.principals import Actor
from orchestrator.tenants.store import tenants
from orchestrator.tenants.store.tenants import NewGpusLimit


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


async def change_tenant_state(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, *, state: str
) -> Answer:
    """200 with the tenant; a suspended tenant's keys are refused, what it runs goes on. 409 `tenant_deleted`."""

    async def effect(tx: Transaction) -> Done:
        tenant = await tenants.set_tenant_state(tx, tenant_id, state)
        await audit.record(
            tx, actor, "tenant.change_state", f"tenants/{tenant_id}", {"state": state}, operation.request_id
        )
        return Done(200, asdict(tenant), tenant_id)

    return await run_once(context, operation, effect, None)


async def set_quota(
    context: Context,
    operation: Operation,
    actor: Actor,
    tenant_id: UUID,
    *,
    gpus: NewGpusLimit | None,
    limits: Mapping[str, int | None],
) -> Answer:
    """200 with the tenant. A limit below what it holds takes nothing away; it only refuses more.

    `gpus`: None leaves that limit as it is. `limits`: by quota; None is the default again, what is not named stays.
    """

    async def effect(tx: Transaction) -> Done:
        tenant = await tenants.set_limits(tx, tenant_id, gpus, limits)
        detail = ({} if gpus is None else {"gpus_limit": gpus.limit}) | ({"limits": dict(limits)} if limits else {})
        await audit.record(tx, actor, "tenant.set_quota", f"tenants/{tenant_id}", detail, operation.request_id)
        return Done(200, asdict(tenant), tenant_id)

    return await run_once(context, operation, effect, None)


async def delete_tenant(context: Context, operation: Operation, actor: Actor, tenant_id: UUID) -> Answer:
    """204; a repetition changes nothing. 404 `not_found`; 409 `tenant_in_use` with the counts of what it still holds.

    From the commit on its keys are refused here, within `credential_cache_seconds` by every other process, and whatever a
    request that was let in before would create, hold or commit is refused at once.
    """

    async def effect(tx: Transaction) -> Done:
        gone = await tenants.delete_empty_tenant(tx, tenant_id)
        if gone is None:
            return Done(204, None, tenant_id, NOOP)
        removed = asdict(gone)
        await append_event(
            tx,
            Event(
                EventType.TENANT_DELETED,
                subject=f"tenants/{tenant_id}",
                correlation_id=uuid4(),
                tenant_id=None,
                payload={"tenant_id": str(tenant_id), **removed},
                operation_key=operation.key,
                request_id=operation.request_id,
            ),
        )
        await audit.record(tx, actor, "tenant.delete", f"tenants/{tenant_id}", removed, operation.request_id)
        return Done(204, None, tenant_id)

    return await run_once(context, operation, effect, None)
