"""Forget a tenant's public SSH key."""

from __future__ import annotations

from uuid import UUID

from orchestrator.execution import Context, Done, run_once
from orchestrator.store import ssh_keys
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def remove_ssh_key(context: Context, operation: Operation, tenant_id: UUID, key_id: UUID) -> Answer:
    """204; allocations that run keep the key they were created with."""

    async def effect(tx: Transaction) -> Done:
        await ssh_keys.delete_ssh_key(tx, tenant_id, key_id)
        return Done(204, None, key_id)

    return await run_once(context, operation, effect, tenant_id)
