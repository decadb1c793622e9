"""Keep the log from a version on."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import Transaction
from orchestrator.log.store import retention, truncation
from orchestrator.log.store.truncation import Truncation
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Principal


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


async def truncate_log(context: Context, *, age_seconds: float, versions_min: int) -> Truncation:
    """What became of it. Readers and writers are kept waiting for 50 ms at most; then it is `busy`: try again."""
    async with context.database.transaction() as tx:
        done = await truncation.truncate(tx, age_seconds=age_seconds, versions_min=versions_min)
        if done is Truncation.DROPPED:
            reach(CrashPoint.TRUNCATE_LOG_BEFORE_COMMIT)
    if done is Truncation.DROPPED:
        reach(CrashPoint.TRUNCATE_LOG_AFTER_COMMIT)
    return done
