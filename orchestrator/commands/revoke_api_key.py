"""Revoke an API key."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import api_keys, audit
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def revoke_api_key(context: Context, operation: Operation, actor: Actor, key_id: UUID) -> Answer:
    """204; the key is refused at once here, and within `credential_cache_seconds` by every other process."""

    async def effect(tx: Transaction) -> Done:
        await api_keys.revoke_api_key(tx, key_id)
        await audit.record(tx, actor, "api_key.revoke", f"api-keys/{key_id}", {}, operation.request_id)
        return Done(204, None, key_id)

    return await run_once(context, operation, effect, None)
