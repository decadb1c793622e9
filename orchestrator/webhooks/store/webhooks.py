"""Webhooks: their rows and signing keys. Keys are sealed before they arrive here and opened by the caller."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.operations.store.tenancy import require_quota
from orchestrator.problems import NotFound, Quota
from orchestrator.webhooks.rules import WebhookKeysFull

KEYS_MAX = 5
"""The bound on live keys: the newest, and those whose overlap is not over."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook without its keys. `public_keys`: of Ed25519, newest first.

    `missed_before`: events before this version were truncated before the webhook reached them.
    """

    id: UUID
    url: str
    description: str | None
    types: Sequence[str]
    signing: str
    public_keys: Sequence[str]
    state: str
    disabled_reason: str | None
    disabled_at: datetime | None
    failing_since: datetime | None
    position: int
    missed_before: int | None
    created_at: datetime
    updated_at: datetime


# Serializes creates per tenant: a tenant without webhooks has no row that could be locked.
_COUNT = """
select count(*) from webhooks w
where w.state <> 'deleted' and w.tenant_id is not distinct from cast(:tenant_id as uuid)
"""
_INSERT = """
insert into webhooks as w (id, tenant_id, url, description, types, signing, keys, position, versions_max, created_by,
                           key_expires_at)
select :id, :tenant_id, :url, :description, cast(:types as text[]), :signing, cast(:keys as jsonb), h.version, :versions_max,
       :created_by, (select k.expires_at from api_keys k where k.id = :created_by and cast(:tenant_id as uuid) is null)
from log_head h
returning w.id, w.url, w.description, w.types, w.signing,
       array(select key ->> 'public_key' from jsonb_array_elements(w.keys) with ordinality live(key, place)
             where key ->> 'public_key' is not null
               and (key ->> 'until' is null or cast(key ->> 'until' as timestamptz) > clock_timestamp())
             order by place) as public_keys,
       w.state, w.disabled_reason, w.disabled_at, w.failing_since, w.position, w.missed_before, w.created_at, w.updated_at
"""
_READ = """
select w.id, w.url, w.description, w.types, w.signing,
       array(select key ->> 'public_key' from jsonb_array_elements(w.keys) with ordinality live(key, place)
             where key ->> 'public_key' is not null
               and (key ->> 'until' is null or cast(key ->> 'until' as timestamptz) > clock_timestamp())
             order by place) as public_keys,
       w.state, w.disabled_reason, w.disabled_at, w.failing_since, w.position, w.missed_before, w.created_at, w.updated_at
from webhooks w
where w.id = :id and w.state <> 'deleted' and w.tenant_id is not distinct from cast(:tenant_id as uuid)
"""
_LIST = """
select w.id, w.url, w.description, w.types, w.signing,
       array(select key ->> 'public_key' from jsonb_array_elements(w.keys) with ordinality live(key, place)
             where key ->> 'public_key' is not null
               and (key ->> 'until' is null or cast(key ->> 'until' as timestamptz) > clock_timestamp())
             order by place) as public_keys,
       w.state, w.disabled_reason, w.disabled_at, w.failing_since, w.position, w.missed_before, w.created_at, w.updated_at
from webhooks w
where w.state <> 'deleted' and w.tenant_id is not distinct from cast(:tenant_id as uuid) and w.id > :after
order by w.id limit :limit
"""
_LOCK = """
select w.id from webhooks w
where w.id = :id and w.state <> 'deleted' and w.tenant_id is not distinct from cast(:tenant_id as uuid)
for no key update
"""
# A webhook that is enabled again starts at the head of the log, and belongs to the key that enables it. Missed events are read
# from the feed or replayed.
_CHANGE = """
update webhooks w set
    url = coalesce(:url, w.url), description = coalesce(:description, w.description),
    types = coalesce(cast(:types as text[]), w.types), state = coalesce(:state, w.state),
    disabled_reason = case when coalesce(:state, w.state) = 'disabled' then coalesce(w.disabled_reason, 'requested') end,
    disabled_at = case when coalesce(:state, w.state) = 'disabled' then coalesce(w.disabled_at, clock_timestamp()) end,
    failing_since = case when w.state = 'disabled' and :state = 'enabled' then null else w.failing_since end,
    position = case when w.state = 'disabled' and :state = 'enabled' then h.version else w.position end,
    created_by = case when w.state = 'disabled' and :state = 'enabled' then :caller else w.created_by end,
    key_expires_at = case when w.state = 'disabled' and :state = 'enabled'
                          then (select k.expires_at from api_keys k where k.id = :caller and w.tenant_id is null)
                          else w.key_expires_at end,
    updated_at = clock_timestamp()
from log_head h where w.id = :id
returning w.id, w.url, w.description, w.types, w.signing,
       array(select key ->> 'public_key' from jsonb_array_elements(w.keys) with ordinality live(key, place)
             where key ->> 'public_key' is not null
               and (key ->> 'until' is null or cast(key ->> 'until' as timestamptz) > clock_timestamp())
             order by place) as public_keys,
       w.state, w.disabled_reason, w.disabled_at, w.failing_since, w.position, w.missed_before, w.created_at, w.updated_at
"""
_FAIL_PENDING = """
update webhook_deliveries set state = 'failed', error = 'webhook_disabled', next_attempt_at = null, ended_at = clock_timestamp()
where webhook_id = :id and state = 'pending' and not leased
"""
_DELETE = """
update webhooks set state = 'deleted', keys = '[]', disabled_reason = null, disabled_at = null, updated_at = clock_timestamp()
where id = :id
"""
_KEYS = """
select (select coalesce(jsonb_agg(key order by place), '[]')
        from jsonb_array_elements(w.keys) with ordinality live(key, place)
        where key ->> 'until' is null or cast(key ->> 'until' as timestamptz) > clock_timestamp()) as keys,
       clock_timestamp() + make_interval(secs => :overlap_seconds) as until
from webhooks w where w.id = :id
"""
_SET_KEYS = """
update webhooks w set keys = cast(:keys as jsonb), updated_at = clock_timestamp() where w.id = :id
returning w.id, w.url, w.description, w.types, w.signing,
       array(select key ->> 'public_key' from jsonb_array_elements(w.keys) with ordinality live(key, place)
             where key ->> 'public_key' is not null
               and (key ->> 'until' is null or cast(key ->> 'until' as timestamptz) > clock_timestamp())
             order by place) as public_keys,
       w.state, w.disabled_reason, w.disabled_at, w.failing_since, w.position, w.missed_before, w.created_at, w.updated_at
"""


async def draw_webhook_id(tx: Transaction, tenant_id: UUID | None, webhooks_max: int) -> UUID:
    """Draw an id for a new webhook; the quota of webhooks holds until this commits. Raises `QuotaExceeded`."""
    values = {"tenant_id": tenant_id}
    await require_quota(tx, tenant_id, Quota.WEBHOOKS, _COUNT, values, default=webhooks_max)
    made: UUID = (await tx.execute("select uuidv7()")).scalar_one()
    return made


async def insert_webhook(
    tx: Transaction,
    webhook_id: UUID,
    tenant_id: UUID | None,
    *,
    url: str,
    description: str | None,
    types: Sequence[str],
    signing: str,
    sealed: str,
    public_key: str | None,
    versions_max: int,
    created_by: UUID,
) -> Webhook:
    """Insert a webhook that starts at the head of the log."""
    values = {
        "id": webhook_id, "tenant_id": tenant_id, "url": url, "description": description, "types": list(types),
        "signing": signing, "keys": json.dumps([_key(sealed, public_key)]), "versions_max": versions_max,
        "created_by": created_by,
    }  # fmt: skip
    return _webhook((await tx.execute(_INSERT, values)).one())


async def read_webhook(reading: Reading, tenant_id: UUID | None, webhook_id: UUID) -> Webhook:
    """Return one webhook. Raises `NotFound`, also for a webhook of another tenant."""
    row = (await reading.execute(_READ, {"id": webhook_id, "tenant_id": tenant_id})).first()
    if row is None:
        raise _not_found(webhook_id)
    return _webhook(row)


async def list_webhooks(reading: Reading, tenant_id: UUID | None, after: UUID, limit: int) -> list[Webhook]:
    """Return up to `limit` webhooks in creation order."""
    rows = await reading.execute(_LIST, {"tenant_id": tenant_id, "after": after, "limit": limit})
    return [_webhook(row) for row in rows]


async def lock_webhook(tx: Transaction, tenant_id: UUID | None, webhook_id: UUID) -> None:
    """Lock a webhook, and thereby its deliveries. Raises `NotFound`, also for a webhook of another tenant."""
    if (await tx.execute(_LOCK, {"id": webhook_id, "tenant_id": tenant_id})).first() is None:
        raise _not_found(webhook_id)


async def change_webhook(
    tx: Transaction,
    webhook_id: UUID,
    *,
    url: str | None,
    description: str | None,
    types: Sequence[str] | None,
    state: str | None,
    caller: UUID,
) -> Webhook:
    """Change a locked webhook; None leaves a member unchanged. Disabling fails pending deliveries, which can be replayed.

    One that is enabled again belongs to the caller's key, as if that key had created it.
    """
    values = {"id": webhook_id, "url": url, "description": description, "state": state, "caller": caller}
    row = (await tx.execute(_CHANGE, {**values, "types": None if types is None else list(types)})).one()
    if state == "disabled":
        await fail_pending(tx, webhook_id)
    return _webhook(row)


async def fail_pending(tx: Transaction, webhook_id: UUID) -> None:
    """Fail the pending deliveries of a webhook; attempts in flight end by themselves."""
    await tx.execute(_FAIL_PENDING, {"id": webhook_id})


async def delete_webhook(tx: Transaction, webhook_id: UUID) -> None:
    """Delete a locked webhook and its keys; a sweeper deletes its deliveries."""
    await tx.execute(_DELETE, {"id": webhook_id})
    await fail_pending(tx, webhook_id)


async def rotate_keys(
    tx: Transaction, webhook_id: UUID, *, sealed: str, public_key: str | None, overlap_seconds: float
) -> Webhook:
    """Add a newest signing key to a locked webhook; older keys sign for at most `overlap_seconds` more.

    Raises `WebhookKeysFull`.
    """
    row = (await tx.execute(_KEYS, {"id": webhook_id, "overlap_seconds": overlap_seconds})).one()
    older = [
        {**key, "until": min(filter(None, (key["until"], row.until.isoformat())), key=datetime.fromisoformat)}
        for key in row.keys
        if overlap_seconds > 0
    ]
    if len(older) >= KEYS_MAX:
        raise WebhookKeysFull(
            f"{len(older)} keys are live and the bound is {KEYS_MAX}; wait until an overlap ends, or rotate without overlap"
        )
    keys = json.dumps([_key(sealed, public_key), *older])
    return _webhook((await tx.execute(_SET_KEYS, {"id": webhook_id, "keys": keys})).one())


def _key(sealed: str, public_key: str | None) -> dict[str, str | None]:
    return {"sealed": sealed, "public_key": public_key, "until": None}


def _webhook(row: Any) -> Webhook:
    return Webhook(**row._mapping)


def _not_found(webhook_id: UUID) -> NotFound:
    return NotFound(f"there is no webhook {webhook_id}")
