"""Let go of what a retention policy held."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, retention
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def remove_retention_policy(
    context: Context, operation: Operation, caller: Principal, scope: UUID, policy_id: str
) -> Answer:
    """204; the log may be truncated at the next look. Raises `NotFound`."""

    async def effect(tx: Transaction) -> Done:
        held = await retention.delete_policy(tx, scope, policy_id)
        if caller.tenant_id is None:
            detail = {"prevent_truncate": held}
            await audit.record(
                tx, caller.actor, "retention.delete", f"retention/{policy_id}", detail, operation.request_id
            )
        return Done(204, None)

    return await run_once(context, operation, effect, caller.tenant_id)
