"""Forget a named subscription of notifications: it keeps nothing of the log any more."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, subscriptions
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def remove_subscription(
    context: Context, operation: Operation, caller: Principal, scope: UUID, name: str
) -> Answer:
    """204; who is connected under this name is told when it acknowledges next. Raises `NotFound`."""

    async def effect(tx: Transaction) -> Done:
        version = await subscriptions.delete_subscription(tx, scope, name)
        if caller.tenant_id is None:
            detail = {"version": version}
            await audit.record(
                tx, caller.actor, "subscription.delete", f"subscriptions/{name}", detail, operation.request_id
            )
        return Done(204, None)

    return await run_once(context, operation, effect, caller.tenant_id)
