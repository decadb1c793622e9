"""Store a tenant's public SSH key."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.execution import Context, Done, run_once
from orchestrator.store import ssh_keys
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.trust.ssh_keys import SshPublicKey


async def add_ssh_key(
    context: Context, operation: Operation, tenant_id: UUID, *, name: str, key: SshPublicKey
) -> Answer:
    """201 with the key; 409 `already_exists` if the tenant has the name or the key."""

    async def effect(tx: Transaction) -> Done:
        added = await ssh_keys.insert_ssh_key(
            tx, tenant_id, name=name, public_key=key.line, fingerprint=key.fingerprint
        )
        return Done(201, asdict(added), added.id)

    return await run_once(context, operation, effect, tenant_id)
