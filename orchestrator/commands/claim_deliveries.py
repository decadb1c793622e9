"""Take attempts that are due, for a while."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.execution import Context, transact
from orchestrator.store.database import Transaction
from orchestrator.store.webhook_dispatch import Busy, Claim, claim


async def claim_deliveries(
    context: Context, busy: Sequence[Busy], *, limit: int, webhook_max: int, tenant_max: int, lease_seconds: float
) -> list[Claim]:
    """No attempt is taken twice until `lease_seconds` are over; one that nobody reported by then is taken again."""

    async def effect(tx: Transaction) -> list[Claim]:
        return await claim(
            tx, busy, limit=limit, webhook_max=webhook_max, tenant_max=tenant_max, lease_seconds=lease_seconds
        )

    return await transact(context, effect)
