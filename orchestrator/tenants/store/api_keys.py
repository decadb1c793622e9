"""API keys: only the SHA-256 of a key is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select

from orchestrator.database.calls import FunctionCall
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import NotFound
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.tables import api_keys


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret."""

    id: UUID
    name: str
    role: str
    tenant_id: UUID | None
    prefix: str
    created_at: datetime
    revoked_at: datetime | None


_INSERT = """
insert into api_keys (name, role, access_role, tenant_id, prefix, secret_hash)
values (
    :name, case when cast(:tenant_id as uuid) is null then 'admin' else 'tenant' end, :role, :tenant_id, :prefix, :secret_hash
)
returning id, name, access_role as role, tenant_id, prefix, created_at, revoked_at
"""
_STORED_NAMES = {"role": "access_role"}
_LIST = select(*(api_keys.c[_STORED_NAMES.get(name, name)].label(name) for name in ApiKey.__slots__)).order_by(
    api_keys.c.id
)


async def insert_api_key(
    tx: Transaction, *, name: str, role: str, tenant_id: UUID | None, prefix: str, secret_hash: bytes
) -> ApiKey:
    """A new, live key."""
    row = (
        await tx.execute(
            _INSERT,
            {"name": name, "role": role, "tenant_id": tenant_id, "prefix": prefix, "secret_hash": secret_hash},
        )
    ).one()
    return ApiKey(**row._mapping)


async def list_api_keys(reading: Reading, tenant_id: UUID | None, after: UUID, limit: int) -> list[ApiKey]:
    """Up to `limit` keys, of one tenant or of all, in the order in which they were made."""
    page = _LIST.where(api_keys.c.id > after).limit(limit)
    if tenant_id is not None:
        page = page.where(api_keys.c.tenant_id == tenant_id)
    return [ApiKey(**row._mapping) for row in await reading.execute(page)]


async def revoke_api_key(tx: Transaction, key_id: UUID) -> int:
    """The key is refused from the commit on; return how many webhooks of the operators stop with it. Raises `NotFound`."""
    stopped: int | None = (await tx.execute("select revoke_key(:id)", {"id": key_id})).scalar_one()
    if stopped is None:
        raise NotFound(f"there is no API key {key_id}")
    return stopped


_FIND = """
select coalesce(json_agg(json_build_array(encode(k.secret_hash, 'hex'), k.access_role, k.id, k.tenant_id)), '[]'::json)
from api_keys k left join tenants t on t.id = k.tenant_id
where k.secret_hash = any(%(digests)s) and k.revoked_at is null and (k.tenant_id is null or t.state = 'active')
"""


async def find_principals(call: FunctionCall, digests: Sequence[bytes]) -> dict[bytes, Principal]:
    """The live keys with these SHA-256, of active tenants and operators; others are left out."""
    rows = await call.value(_FIND, {"digests": list(digests)})
    return {
        bytes.fromhex(digest): Principal(role, UUID(id_), None if tenant_id is None else UUID(tenant_id))
        for digest, role, id_, tenant_id in rows
    }


async def is_tenant_active(reading: Reading, tenant_id: UUID) -> bool:
    """Whether there is such a tenant and it is not suspended."""
    row = (
        await reading.execute("select state = 'active' as active from tenants where id = :id", {"id": tenant_id})
    ).first()
    return row is not None and bool(row.active)
