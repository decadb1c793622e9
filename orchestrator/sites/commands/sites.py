"""Create and remove sites."""

from __future__ import annotations

from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.sites.documents import site_document
from orchestrator.sites.ports.store import delete_segments
from orchestrator.sites.refusals import SiteInUse
from orchestrator.sites.store import sites
from orchestrator.tenants.principals import Actor


async def create_site(
    context: Context, operation: Operation, actor: Actor, *, name: str, recovery_key: bytes
) -> Answer:
    """201 with the site; 409 `already_exists` if the name is taken."""

    async def effect(tx: Transaction) -> Done:
        made = await sites.insert_site(tx, name, recovery_key)
        said = {"name": name, "recovery_key": recovery_key.hex()}
        await audit.record(tx, actor, "site.create", f"sites/{made}", said, operation.request_id)
        return Done(201, site_document(await sites.read_site(tx, made), []), made)

    return await run_once(context, operation, effect, None)


async def remove_site(context: Context, operation: Operation, actor: Actor, site_id: UUID) -> Answer:
    """204. Refusals: `NotFound`; `SiteInUse` while an agent is not revoked or a BMC belongs to it."""

    async def effect(tx: Transaction) -> Done:
        await sites.lock_site(tx, site_id)
        agents, machines = await sites.count_users(tx, site_id)
        if agents or machines:
            raise SiteInUse.by(agents, machines)
        await delete_segments(tx, site_id)
        await sites.delete_site(tx, site_id)
        await audit.record(tx, actor, "site.remove", f"sites/{site_id}", {}, operation.request_id)
        return Done(204, None, site_id)

    return await run_once(context, operation, effect, None)
