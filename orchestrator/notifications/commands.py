"""Commands of notifications: open a subscription, acknowledge events, remove a subscription."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.notifications import store as subscriptions
from orchestrator.notifications.store import SubscriptionRetention, raise_positions
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.operations.store.tenancy import keep_tenant
from orchestrator.problems import OperationInProgress, OutcomeUnknown, Overloaded
from orchestrator.tenants.principals import Principal


async def acknowledge_events(
    context: Context, acknowledged: Sequence[tuple[UUID, str, int]], kept_seconds: float
) -> Mapping[tuple[UUID, str], int]:
    """Store acknowledged versions of subscriptions; return their offsets, which never go back.

    A subscription that was removed is missing from the result.
    """
    context = context.for_tenants(*{scope for scope, _, _ in acknowledged})
    return await transact(context, lambda tx: raise_positions(tx, acknowledged, kept_seconds))


async def open_subscription(
    context: Context,
    scope: UUID,
    name: str,
    begin: int,
    *,
    caller: Principal,
    request_id: str | None,
    retention: SubscriptionRetention,
    subscriptions_max: int,
) -> int:
    """Open or create a subscription; return the version to continue after, `begin` for a new one, which the audit records.

    Raises `LogTruncated`, `QuotaExceeded`, `TenantDeleted`; `OutcomeUnknown` if the connection was lost at COMMIT; `Overloaded`
    also if a lock was not to be had. Opening again is harmless, and needs no key.
    """

    async def work(tx: Transaction) -> int:
        tenant_id = caller.tenant_id
        await keep_tenant(tx, tenant_id)
        version, is_new = await subscriptions.open_subscription(
            tx, scope, name, begin, tenant_id=tenant_id, retention=retention, subscriptions_max=subscriptions_max
        )
        if is_new:
            subject, detail = f"subscriptions/{name}", {"version": version}
            await audit.record(tx, caller.actor, "subscription.create", subject, detail, request_id, tenant_id)
        return version

    try:
        return await transact(context, work)
    except OutcomeUnknown as lost:
        raise OutcomeUnknown("the connection to the database was lost; open the subscription again") from lost
    except OperationInProgress as held:
        raise Overloaded("another request holds a lock that this one needs; retry later") from held


async def remove_subscription(
    context: Context, operation: Operation, caller: Principal, scope: UUID, name: str
) -> Answer:
    """Remove a subscription; 204. A connected client receives `not_found` at its next acknowledgement. Raises `NotFound`."""

    async def effect(tx: Transaction) -> Done:
        version = await subscriptions.delete_subscription(tx, scope, name)
        if caller.tenant_id is None:
            detail = {"version": version}
            await audit.record(
                tx, caller.actor, "subscription.delete", f"subscriptions/{name}", detail, operation.request_id
            )
        return Done(204, None)

    return await run_once(context, operation, effect, caller.tenant_id)
