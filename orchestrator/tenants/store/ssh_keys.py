"""The public keys of tenants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.operations.store.tenancy import require_quota
from orchestrator.problems import AlreadyExists, NotFound, Quota, SshKeyNotFound
from orchestrator.tenants.tables import ssh_keys


@dataclass(frozen=True, slots=True)
class SshKey:
    """A tenant's public key."""

    id: UUID
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime


_OWN = select(*(ssh_keys.c[name] for name in SshKey.__slots__))
_INSERT = """
insert into ssh_keys (tenant_id, name, public_key, fingerprint) values (:tenant_id, :name, :public_key, :fingerprint)
on conflict do nothing returning id, name, public_key, fingerprint, created_at
"""
_COUNT = "select count(*) from ssh_keys where tenant_id = :id"
_COUNT_OWN = "select count(*) from ssh_keys where id = any (:ids) and tenant_id = :tenant_id"


async def insert_ssh_key(
    tx: Transaction, tenant_id: UUID, *, name: str, public_key: str, fingerprint: str, keys_max: int
) -> SshKey:
    """A new key. Raises `AlreadyExists` if the tenant has the name or the key, `QuotaExceeded`."""
    await require_quota(tx, tenant_id, Quota.SSH_KEYS, _COUNT, {"id": tenant_id}, default=keys_max)
    row = (
        await tx.execute(
            _INSERT,
            {"tenant_id": tenant_id, "name": name, "public_key": public_key, "fingerprint": fingerprint},
        )
    ).first()
    if row is None:
        there = (
            await tx.execute(
                "select id from ssh_keys where tenant_id = :tenant_id and (name = :name or fingerprint = :fingerprint) limit 1",
                {"tenant_id": tenant_id, "name": name, "fingerprint": fingerprint},
            )
        ).scalar_one_or_none()
        raise AlreadyExists(
            f"there is already an SSH key called {name!r}, or one with this fingerprint", existing_id=there
        )
    return SshKey(**row._mapping)


async def read_ssh_key(reading: Reading, tenant_id: UUID, key_id: UUID) -> SshKey:
    """The tenant's key. Raises `NotFound`, also for another tenant's."""
    own = _OWN.where(ssh_keys.c.id == key_id, ssh_keys.c.tenant_id == tenant_id)
    row = (await reading.execute(own)).first()
    if row is None:
        raise NotFound(f"there is no SSH key {key_id}")
    return SshKey(**row._mapping)


async def require_own_keys(reading: Reading, tenant_id: UUID, key_ids: Sequence[UUID]) -> None:
    """Each of them is a key of the tenant's. Raises `SshKeyNotFound`."""
    wanted = list(dict.fromkeys(key_ids))
    own = await reading.execute(_COUNT_OWN, {"ids": wanted, "tenant_id": tenant_id})
    if own.scalar_one() < len(wanted):
        raise SshKeyNotFound("one of ssh_key_ids is not a key of this tenant")


async def list_ssh_keys(reading: Reading, tenant_id: UUID, after: UUID, limit: int) -> list[SshKey]:
    """Up to `limit` of the tenant's keys in the order in which they were made."""
    page = _OWN.where(ssh_keys.c.tenant_id == tenant_id, ssh_keys.c.id > after).order_by(ssh_keys.c.id).limit(limit)
    return [SshKey(**row._mapping) for row in await reading.execute(page)]


async def delete_ssh_key(tx: Transaction, tenant_id: UUID, key_id: UUID) -> None:
    """Delete the key; allocations keep their own copy. Raises `NotFound`, also for another tenant's."""
    done = await tx.execute(
        "delete from ssh_keys where id = :id and tenant_id = :tenant_id", {"id": key_id, "tenant_id": tenant_id}
    )
    if done.rowcount == 0:
        raise NotFound(f"there is no SSH key {key_id}")
