"""API keys: only the SHA-256 of a key is stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.domain.errors import NotFound
from orchestrator.store.database import Reading, Transaction


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


_COLUMNS = "id, name, role, tenant_id, prefix, created_at, revoked_at"


async def insert_api_key(
    tx: Transaction, *, name: str, role: str, tenant_id: UUID | None, prefix: str, secret_hash: bytes
) -> ApiKey:
    """A new, live key."""
    row = (
        await tx.execute(
            f"""insert into api_keys (name, role, tenant_id, prefix, secret_hash)
            values (:name, :role, :tenant_id, :prefix, :secret_hash) returning {_COLUMNS}""",
            {"name": name, "role": role, "tenant_id": tenant_id, "prefix": prefix, "secret_hash": secret_hash},
        )
    ).one()
    return ApiKey(**row._mapping)


async def list_api_keys(reading: Reading, tenant_id: UUID | None, after: UUID, limit: int) -> list[ApiKey]:
    """Up to `limit` keys, of one tenant or of all, in the order in which they were made."""
    rows = await reading.execute(
        f"""select {_COLUMNS} from api_keys
        where id > :after and (cast(:tenant_id as uuid) is null or tenant_id = :tenant_id) order by id limit :limit""",
        {"tenant_id": tenant_id, "after": after, "limit": limit},
    )
    return [ApiKey(**row._mapping) for row in rows]


async def revoke_api_key(tx: Transaction, key_id: UUID) -> None:
    """The key is refused from the commit on; the time of the first revocation stays. Raises `NotFound`."""
    done = await tx.execute(
        "update api_keys set revoked_at = coalesce(revoked_at, clock_timestamp()) where id = :id", {"id": key_id}
    )
    if done.rowcount == 0:
        raise NotFound(f"there is no API key {key_id}")
