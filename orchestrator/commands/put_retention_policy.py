"""Keep the log from a version on."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, retention
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def put_retention_policy(
    context: Context,
    operation: Operation,
    caller: Principal,
    scope: UUID,
    policy_id: str,
    prevent_truncate: int,
    *,
    versions_max: int | None,
    policies_max: int,
) -> Answer:
    """200 with the policy, or 201 when it was made. Raises what `put_policy` raises."""

    async def effect(tx: Transaction) -> Done:
        policy, made = await retention.put_policy(
            tx, scope, policy_id, prevent_truncate, versions_max=versions_max, policies_max=policies_max
        )
        if caller.tenant_id is None:
            detail = {"prevent_truncate": prevent_truncate}
            await audit.record(
                tx, caller.actor, "retention.put", f"retention/{policy_id}", detail, operation.request_id
            )
        return Done(201 if made else 200, asdict(policy))

    return await run_once(context, operation, effect, caller.tenant_id)
