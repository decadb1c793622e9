"""Store a tenant's public SSH key."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.operations.store.tenancy import keep_tenant
from orchestrator.tenants.ssh_key_format import SshPublicKey
from orchestrator.tenants.store import ssh_keys


async def add_ssh_key(
    context: Context, operation: Operation, tenant_id: UUID, *, name: str, key: SshPublicKey, keys_max: int
) -> Answer:
    """201 with the key; 409 `already_exists` if the tenant has the name or the key. `keys_max`: the default of its quota."""

    async def effect(tx: Transaction) -> Done:
        await keep_tenant(tx, tenant_id)
        added = await ssh_keys.insert_ssh_key(
            tx, tenant_id, name=name, public_key=key.line, fingerprint=key.fingerprint, keys_max=keys_max
        )
        return Done(201, asdict(added), added.id)

    return await run_once(context, operation, effect, tenant_id)


async def remove_ssh_key(context: Context, operation: Operation, tenant_id: UUID, key_id: UUID) -> Answer:
    """204; allocations that run keep the key they were created with."""

    async def effect(tx: Transaction) -> Done:
        await ssh_keys.delete_ssh_key(tx, tenant_id, key_id)
        return Done(204, None, key_id)

    return await run_once(context, operation, effect, tenant_id)
