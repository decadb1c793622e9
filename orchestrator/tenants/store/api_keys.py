"""API keys: only the SHA-256 of a key is stored."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select

from orchestrator.database.calls import FunctionCall
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import Invalid, NotFound
from orchestrator.tenants.key_secrets import StoredSecret
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.tables import api_keys


@dataclass(frozen=True, slots=True)
class KeyWanted:
    """A key to create: of a tenant, or of operators if `tenant_id` is None."""

    name: str
    role: str
    tenant_id: UUID | None
    expires_at: datetime | None
    owner: str | None
    break_glass: bool = False
    scopes: Sequence[str] | None = None
    """What it may do within its role; None: everything."""


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Bounds of new keys. `lifetime_seconds_max` 0: no bound; `keys_max`: the default of a tenant's quota of live keys."""

    lifetime_seconds_max: int
    keys_max: int


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
    expires_at: datetime | None
    owner: str | None
    last_used_at: datetime | None
    replaced_by: UUID | None
    break_glass: bool
    scopes: list[str] | None


_INSERT = """
insert into api_keys (name, role, access_role, tenant_id, prefix, secret_hash, expires_at, owner, break_glass, scopes)
values (
    :name, case when cast(:tenant_id as uuid) is null then 'admin' else 'tenant' end, :role, :tenant_id, :prefix, :secret_hash,
    :expires_at, :owner, :break_glass, cast(:scopes as text[])
)
returning id, name, access_role as role, tenant_id, prefix, created_at, revoked_at, expires_at, owner, last_used_at, replaced_by,
          break_glass, scopes
"""
_CLOCK = "select clock_timestamp()"
_STORED_NAMES = {"role": "access_role"}
_LIST = select(*(api_keys.c[_STORED_NAMES.get(name, name)].label(name) for name in ApiKey.__slots__)).order_by(
    api_keys.c.id
)


async def read_expiry(tx: Transaction, expires_at: datetime | None, lifetime_seconds_max: int) -> datetime | None:
    """When a key of now ends: as wanted, or as late as allowed if nothing is wanted. 0 as the bound: none.

    Raises `Invalid` for a time that is past by the database's clock or beyond the bound.
    """
    now: datetime = (await tx.execute(_CLOCK, {})).scalar_one()
    latest = now + timedelta(seconds=lifetime_seconds_max) if lifetime_seconds_max else None
    if expires_at is None:
        return latest
    if expires_at <= now:
        raise Invalid("expires_at is past; name a later time")
    if latest is not None and expires_at > latest:
        raise Invalid(
            f"the longest life of a key is {lifetime_seconds_max} seconds; name an earlier expires_at or none"
        )
    return expires_at


async def insert_api_key(
    tx: Transaction, wanted: KeyWanted, secret: StoredSecret, expires_at: datetime | None
) -> ApiKey:
    """A new, live key; `expires_at` is what `read_expiry` has returned."""
    values = {
        "name": wanted.name, "role": wanted.role, "tenant_id": wanted.tenant_id, "owner": wanted.owner,
        "prefix": secret.prefix, "secret_hash": secret.sha256, "expires_at": expires_at, "break_glass": wanted.break_glass,
        "scopes": None if wanted.scopes is None else sorted(set(wanted.scopes)),
    }  # fmt: skip
    row = (await tx.execute(_INSERT, values)).one()
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
select coalesce(json_agg(json_build_array(encode(k.secret_hash, 'hex'), k.access_role, k.id, k.tenant_id,
                                          extract(epoch from k.expires_at - clock_timestamp()), k.break_glass, k.owner,
                                          k.scopes)),
                '[]'::json)
from api_keys k left join tenants t on t.id = k.tenant_id
where k.secret_hash = any(%(digests)s) and k.revoked_at is null
  and (k.expires_at is null or k.expires_at > clock_timestamp()) and (k.tenant_id is null or t.state = 'active')
"""


async def find_principals(call: FunctionCall, digests: Sequence[bytes]) -> dict[bytes, Principal]:
    """The live keys with these SHA-256, of active tenants and operators; others are left out."""
    # From before the query, so that the end by this process's clock is never after `expires_at`.
    asked_at = time.monotonic()
    rows = await call.value(_FIND, {"digests": list(digests)})
    return {
        bytes.fromhex(digest): Principal(
            role,
            UUID(id_),
            None if tenant_id is None else UUID(tenant_id),
            None if seconds is None else asked_at + float(seconds),
            break_glass,
            owner,
            scopes=None if scopes is None else frozenset(scopes),
        )
        for digest, role, id_, tenant_id, seconds, break_glass, owner, scopes in rows
    }


# A key that is locked, because it is revoked or rotated at this moment, keeps its earlier time: it is used again or never.
_NOTE_USES = """
with used as (
    select k.id, clock_timestamp() - make_interval(secs => u.age) as at
    from unnest(cast(:ids as uuid[]), cast(:ages as double precision[])) as u(id, age) join api_keys k on k.id = u.id
    where k.last_used_at is null or k.last_used_at < clock_timestamp() - make_interval(secs => u.age + :least)
    for no key update of k skip locked
)
update api_keys k set last_used_at = used.at from used where k.id = used.id
"""


async def note_uses(tx: Transaction, ages: Mapping[UUID, float], least_seconds: float) -> int:
    """Store the last use of keys, by the seconds since, where it is later than the stored one by `least_seconds`.

    Return how many rows it wrote.
    """
    values = {"ids": list(ages), "ages": list(ages.values()), "least": least_seconds}
    return (await tx.execute(_NOTE_USES, values)).rowcount


# One event per key and interval, whatever processes serve it; the row's lock orders them.
_LOCK_USED = "select from api_keys where id = :id for no key update"
_MARK_USED = """
update api_keys set break_glass_event_at = clock_timestamp()
where id = :id and (break_glass_event_at is null or break_glass_event_at <= clock_timestamp() - make_interval(secs => :interval))
returning name, owner, prefix, access_role as role, break_glass_event_at as used_at
"""
_MARKED_FOR = """
select extract(epoch from break_glass_event_at + make_interval(secs => :interval) - clock_timestamp())
from api_keys where id = :id
"""


@dataclass(frozen=True, slots=True)
class BreakGlassUse:
    """A use of a break-glass key that is to be an event."""

    name: str
    owner: str | None
    prefix: str
    role: str
    used_at: datetime


async def mark_break_glass_use(tx: Transaction, key_id: UUID, interval_seconds: float) -> BreakGlassUse | None:
    """The use, if its event is due; None if one was written within the interval."""
    await tx.execute(_LOCK_USED, {"id": key_id})
    row = (await tx.execute(_MARK_USED, {"id": key_id, "interval": interval_seconds})).first()
    return None if row is None else BreakGlassUse(**row._mapping)


async def seconds_to_next_use(tx: Transaction, key_id: UUID, interval_seconds: float) -> float:
    """Seconds until the next use of the key is an event; 0 or less: at once."""
    left = (await tx.execute(_MARKED_FOR, {"id": key_id, "interval": interval_seconds})).scalar_one_or_none()
    return 0.0 if left is None else float(left)


_IS_OPERATORS = "select exists(select from api_keys where id = :id and tenant_id is null)"


async def is_operators_key(reading: Reading, key_id: UUID) -> bool:
    """Whether there is such a key, and it is an operator's."""
    found: bool = (await reading.execute(_IS_OPERATORS, {"id": key_id})).scalar_one()
    return found


async def is_tenant_active(reading: Reading, tenant_id: UUID) -> bool:
    """Whether there is such a tenant and it is not suspended."""
    row = (
        await reading.execute("select state = 'active' as active from tenants where id = :id", {"id": tenant_id})
    ).first()
    return row is not None and bool(row.active)
