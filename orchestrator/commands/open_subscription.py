"""Go on with a named subscription of notifications, or begin it."""

from __future__ import annotations

from uuid import UUID

from orchestrator.execution import Context, transact
from orchestrator.store import subscriptions
from orchestrator.store.subscriptions import Keeping


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
