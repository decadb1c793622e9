"""Keeps tenants from being deleted while something is added to them, and judges quotas of what no trigger counts."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.calls import Parameters
from orchestrator.database.transactions import Transaction
from orchestrator.problems import Quota, QuotaExceeded, TenantDeleted

_LIMIT = "select lock_quota(:tenant_id, :quota, :default)"
_KEEP = "select keep_tenant(:tenant_id)"


async def keep_tenant(tx: Transaction, tenant_id: UUID | None) -> None:
    """Keep the tenant from being deleted until the transaction ends; None: the operators. Raises `TenantDeleted`.

    Call it before anything else is locked, so that no deletion and this transaction wait for each other.
    """
    if tenant_id is not None and not (await tx.execute(_KEEP, {"tenant_id": tenant_id})).scalar_one():
        raise TenantDeleted.at(tenant_id)


async def require_quota(
    tx: Transaction, tenant_id: UUID | None, quota: Quota, count: str, values: Parameters, *, default: int
) -> None:
    """There is room for one more beside what the statement `count` counts, and it stays so until the transaction ends.

    `default`: the limit where no operator has set the tenant's; None as the tenant: the operators. Raises `QuotaExceeded`.
    """
    limit = (await tx.execute(_LIMIT, {"tenant_id": tenant_id, "quota": quota.value, "default": default})).scalar_one()
    used = (await tx.execute(count, values)).scalar_one()
    if used >= limit:
        raise QuotaExceeded.of(quota, limit=limit, used=used)
