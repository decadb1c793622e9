"""Subscribers of notifications say how far they are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.notifications import store as subscriptions
from orchestrator.notifications.store import Keeping, raise_positions
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Principal


async def acknowledge_events(
    context: Context, acknowledged: Sequence[tuple[UUID, str, int]], kept_seconds: float
) -> Mapping[tuple[UUID, str], int]:
    """Everything up to these versions is acknowledged; positions never go back. Answers where each stands; one that was
    removed meanwhile is missing.
    """
    return await transact(context, lambda tx: raise_positions(tx, acknowledged, kept_seconds))


async def open_subscription(
    context: Context,
    scope: UUID,
    name: str,
    begin: int,
    *,
    tenant_id: UUID | None,
    keeping: Keeping,
    subscriptions_max: int,
) -> int:
    """The version behind which it goes on; a new one begins behind `begin`. Raises `LogTruncated`, `SubscriptionsFull`."""
    return await transact(
        context,
        lambda tx: subscriptions.open_subscription(
            tx, scope, name, begin, tenant_id=tenant_id, keeping=keeping, subscriptions_max=subscriptions_max
        ),
    )


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
