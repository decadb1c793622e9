"""Rotation of API keys, revocation by tenants, and what bounds the keys of a tenant.

A statement with `:scope` finds keys of this tenant alone; null, which only operators' routes pass: of any scope.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.operations.store.tenancy import keep_tenant, require_quota
from orchestrator.problems import InvalidState, NotFound, Quota
from orchestrator.tenants.key_secrets import StoredSecret
from orchestrator.tenants.refusals import LastAdminKey
from orchestrator.tenants.scopes import require_scopes
from orchestrator.tenants.store.api_keys import ApiKey, KeyBounds, KeyWanted, insert_api_key, read_expiry

ENDED_KEPT_MAX = 1_000
"""Revoked and expired keys of a tenant that stay listed, the newest ones; the audit has all."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """How long the old key stays valid, when the new one ends (None: as the old one), and what is stored of its text."""

    overlap_seconds: int
    expires_at: datetime | None
    secret: StoredSecret


@dataclass(frozen=True, slots=True)
class Rotated:
    """A key that may be rotated. `renewed`: the end of a successor with the same length of life; None: it does not expire."""

    name: str
    role: str
    tenant_id: UUID | None
    owner: str | None
    break_glass: bool
    renewed: datetime | None
    scopes: list[str] | None


_COUNT_LIVE = """
select count(*) from api_keys where tenant_id = :id and id is distinct from cast(:without as uuid)
  and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())
"""
_DROP_ENDED = """
delete from api_keys where id in (
    select id from api_keys where id in (
        select id from api_keys where tenant_id = :tenant_id and (revoked_at is not null or expires_at <= clock_timestamp())
        order by id desc offset :kept
    ) for update skip locked
)
"""
_TENANT_OF = "select tenant_id from api_keys where id = :id and (cast(:scope as uuid) is null or tenant_id = :scope)"
_LOCK = """
select from api_keys where id = :id and (cast(:scope as uuid) is null or tenant_id = :scope) for no key update
"""
# After the lock, so that the clock is. The representable years of a response end with 9999.
_READ = """
select name, access_role as role, tenant_id, owner, break_glass, scopes,
       case when revoked_at is not null then 'revoked' when expires_at <= clock_timestamp() then 'expired'
            when replaced_by is not null then 'replaced' else 'live' end as state,
       case when expires_at is not null
            then least(clock_timestamp() + (expires_at - created_at), timestamptz '9999-12-31 00:00:00+00') end as renewed
from api_keys where id = :id and (cast(:scope as uuid) is null or tenant_id = :scope)
"""
_REPLACE = """
update api_keys set replaced_by = :successor, expires_at = least(expires_at, clock_timestamp() + make_interval(secs => :overlap))
where id = :id and (cast(:scope as uuid) is null or tenant_id = :scope)
returning expires_at
"""
# An operators' webhook ends with its key, so it follows a rotation.
_MOVE_WEBHOOKS = """
update webhooks set created_by = :successor, key_expires_at = :expires_at
where tenant_id is null and created_by = :id and state <> 'deleted'
"""
_LOCK_TENANT = "select from tenants where id = :tenant_id for no key update"
# A key with scopes does not count: it cannot make a key that may do everything.
_IS_LAST_ADMIN = """
select k.access_role = 'admin' and k.scopes is null
   and k.revoked_at is null and (k.expires_at is null or k.expires_at > clock_timestamp())
   and not exists (select from api_keys o
                   where o.tenant_id = k.tenant_id and o.id <> k.id and o.access_role = 'admin' and o.scopes is null
                     and o.revoked_at is null and o.replaced_by is null
                     and (o.expires_at is null or o.expires_at > clock_timestamp()))
from api_keys k where k.id = :id and k.tenant_id = :tenant_id
"""
_REVOKE = """
update api_keys set revoked_at = coalesce(revoked_at, clock_timestamp()) where id = :id and tenant_id = :tenant_id
"""


async def require_room(tx: Transaction, tenant_id: UUID, keys_max: int, *, without: UUID | None = None) -> None:
    """The tenant may have one more live key beside those that it has, `without` not counted. Raises `QuotaExceeded`.

    Also deletes its oldest ended keys beyond `ENDED_KEPT_MAX`, so that a tenant's rows are bounded.
    """
    values = {"id": tenant_id, "without": without}
    await require_quota(tx, tenant_id, Quota.API_KEYS, _COUNT_LIVE, values, default=keys_max)
    await tx.execute(_DROP_ENDED, {"tenant_id": tenant_id, "kept": ENDED_KEPT_MAX})


async def read_key_tenant(tx: Transaction, scope: UUID | None, key_id: UUID) -> UUID | None:
    """The tenant of a key, None for an operator's. Raises `NotFound`, also for a key outside the scope."""
    row = (await tx.execute(_TENANT_OF, {"id": key_id, "scope": scope})).first()
    if row is None:
        raise _not_found(key_id)
    tenant_id: UUID | None = row.tenant_id
    return tenant_id


async def lock_for_rotation(tx: Transaction, scope: UUID | None, key_id: UUID, held: Collection[str] | None) -> Rotated:
    """Lock a key that is to be rotated by a caller that holds these scopes.

    Raises `NotFound`, `InvalidState` if it is revoked, expired or replaced already, `ScopesExceeded` for one with wider scopes.
    """
    values = {"id": key_id, "scope": scope}
    if (await tx.execute(_LOCK, values)).first() is None:
        raise _not_found(key_id)
    row = (await tx.execute(_READ, values)).one()
    if row.state != "live":
        raise InvalidState(f"API key {key_id} is {row.state}; create a key, or rotate a live one", state=row.state)
    require_scopes(held, row.scopes)
    return Rotated(row.name, row.role, row.tenant_id, row.owner, row.break_glass, row.renewed, row.scopes)


async def rotate_key(
    tx: Transaction,
    scope: UUID | None,
    key_id: UUID,
    wanted: Rotation,
    bounds: KeyBounds,
    held: Collection[str] | None,
) -> tuple[ApiKey, datetime]:
    """Make a key of the same name, role, owner and scopes; return it, and when the old one ends.

    That is after the overlap, or at its expiry. `held`: the scopes of the caller. Operators' webhooks of the old key belong
    to the new one from the commit on. Raises `NotFound`, also for a key outside the scope, `InvalidState` if the key is not live,
    `QuotaExceeded`, `Invalid`, and `ScopesExceeded`.
    """
    tenant_id = await read_key_tenant(tx, scope, key_id)
    await keep_tenant(tx, tenant_id)
    if tenant_id is not None:
        await require_room(tx, tenant_id, bounds.keys_max, without=None if wanted.overlap_seconds else key_id)
    old = await lock_for_rotation(tx, scope, key_id, held)
    latest = await read_expiry(tx, wanted.expires_at, bounds.lifetime_seconds_max)
    ends = latest if wanted.expires_at is not None else min(filter(None, (latest, old.renewed)), default=None)
    successor = KeyWanted(old.name, old.role, tenant_id, ends, old.owner, old.break_glass, old.scopes)
    made = await insert_api_key(tx, successor, wanted.secret, ends)
    values = {"id": key_id, "scope": scope, "successor": made.id, "overlap": wanted.overlap_seconds}
    replaced: datetime = (await tx.execute(_REPLACE, values)).scalar_one()
    if tenant_id is None:
        await tx.execute(_MOVE_WEBHOOKS, {"id": key_id, "successor": made.id, "expires_at": made.expires_at})
    return made, replaced


async def revoke_own_key(tx: Transaction, tenant_id: UUID, key_id: UUID) -> None:
    """A tenant's key is refused from the commit on; the time of the first revocation stays.

    Raises `NotFound`, also for another tenant's, and `LastAdminKey`. Revocations of a tenant run one after the other, so that
    two of its last two `admin` keys do not both succeed.
    """
    values = {"id": key_id, "tenant_id": tenant_id}
    await tx.execute(_LOCK_TENANT, {"tenant_id": tenant_id})
    last: bool | None = (await tx.execute(_IS_LAST_ADMIN, values)).scalar_one_or_none()
    if last is None:
        raise _not_found(key_id)
    if last:
        raise LastAdminKey(
            f"API key {key_id} is the tenant's last live admin key; create another admin key first, or ask the operator"
        )
    await tx.execute(_REVOKE, values)


def _not_found(key_id: UUID) -> NotFound:
    return NotFound(f"there is no API key {key_id}")
