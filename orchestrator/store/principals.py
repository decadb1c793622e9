"""Who a key belongs to."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.store.database import Reading

_FIND = """
select k.id, k.role, k.tenant_id from api_keys k left join tenants t on t.id = k.tenant_id
where k.secret_hash = :digest and k.revoked_at is null and (k.tenant_id is null or t.state = 'active')
"""


async def find_principal(reading: Reading, digest: bytes) -> Principal | None:
    """The live key with this SHA-256, of an active tenant or an operator; None otherwise."""
    row = (await reading.execute(_FIND, {"digest": digest})).first()
    return None if row is None else Principal(row.role, row.id, row.tenant_id)


async def is_tenant_active(reading: Reading, tenant_id: UUID) -> bool:
    """Whether there is such a tenant and it is not suspended."""
    row = (
        await reading.execute("select state = 'active' as active from tenants where id = :id", {"id": tenant_id})
    ).first()
    return row is not None and bool(row.active)
