"""Keeps tenants from being deleted while something that no quota counts is added to them."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.problems import TenantDeleted

_KEEP = "select keep_tenant(:tenant_id)"


async def keep_tenant(tx: Transaction, tenant_id: UUID | None) -> None:
    """Keep the tenant from being deleted until the transaction ends; None: the operators. Raises `TenantDeleted`.

    Call it before anything else is locked, so that no deletion and this transaction wait for each other.
    """
    if tenant_id is not None and not (await tx.execute(_KEEP, {"tenant_id": tenant_id})).scalar_one():
        raise TenantDeleted.at(tenant_id)
