"""Webhooks: where events are sent, and what signs them. Keys come here sealed and leave sealed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import NotFound
from orchestrator.webhooks.rules import WebhookKeysFull, WebhooksFull

KEYS_MAX = 5
"""The newest and those whose overlap is not over."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """One, without its keys. `public_keys`: of Ed25519, the newest first. `missed_before`: see migrations."""

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


LIVE_KEYS = """
(select coalesce(jsonb_agg(key order by place), '[]')
 from jsonb_array_elements(w.keys) with ordinality live(key, place)
 where key ->> 'until' is null or cast(key ->> 'until' as timestamptz) > clock_timestamp())"""
_COLUMNS = f"""
w.id, w.url, w.description, w.types, w.signing,
array(select key ->> 'public_key' from jsonb_array_elements({LIVE_KEYS}) with ordinality live(key, place)
      where key ->> 'public_key' is not null order by place) as public_keys,
w.state, w.disabled_reason, w.disabled_at, w.failing_since, w.position, w.missed_before, w.created_at, w.updated_at"""
_OWN = "w.state <> 'deleted' and w.tenant_id is not distinct from cast(:tenant_id as uuid)"
# A lock on what is counted: the tenant may have no row yet that could be locked.
_ALONE = "select pg_advisory_xact_lock(hashtext('berth.webhooks'), hashtext(coalesce(cast(:tenant_id as text), '')))"
_COUNT = f"select count(*) as there, uuidv7() as id from webhooks w where {_OWN}"
_INSERT = f"""
insert into webhooks as w (id, tenant_id, url, description, types, signing, keys, position, versions_max)
select :id, :tenant_id, :url, :description, cast(:types as text[]), :signing, cast(:keys as jsonb), h.version, :versions_max
from log_head h returning {_COLUMNS}
"""
_READ = f"select {_COLUMNS} from webhooks w where w.id = :id and {_OWN}"
_LIST = f"select {_COLUMNS} from webhooks w where {_OWN} and w.id > :after order by w.id limit :limit"
_LOCK = f"select w.id from webhooks w where w.id = :id and {_OWN} for no key update"
# Whoever was disabled begins with what comes next: what it missed is had from the feed, or by a replay of what failed.
_CHANGE = f"""
update webhooks w set
    url = coalesce(:url, w.url), description = coalesce(:description, w.description),
    types = coalesce(cast(:types as text[]), w.types), state = coalesce(:state, w.state),
    disabled_reason = case when coalesce(:state, w.state) = 'disabled' then coalesce(w.disabled_reason, 'requested') end,
    disabled_at = case when coalesce(:state, w.state) = 'disabled' then coalesce(w.disabled_at, clock_timestamp()) end,
    failing_since = case when w.state = 'disabled' and :state = 'enabled' then null else w.failing_since end,
    position = case when w.state = 'disabled' and :state = 'enabled' then h.version else w.position end,
    updated_at = clock_timestamp()
from log_head h where w.id = :id returning {_COLUMNS}
"""
_FAIL_PENDING = """
update webhook_deliveries set state = 'failed', error = 'webhook_disabled', next_attempt_at = null, ended_at = clock_timestamp()
where webhook_id = :id and state = 'pending' and not leased
"""
_DELETE = """
update webhooks set state = 'deleted', keys = '[]', disabled_reason = null, disabled_at = null, updated_at = clock_timestamp()
where id = :id
"""
_KEYS = f"""
select {LIVE_KEYS} as keys, clock_timestamp() + make_interval(secs => :overlap_seconds) as until from webhooks w where w.id = :id
"""
_SET_KEYS = f"""
update webhooks w set keys = cast(:keys as jsonb), updated_at = clock_timestamp() where w.id = :id returning {_COLUMNS}
"""


async def draw_webhook_id(tx: Transaction, tenant_id: UUID | None, webhooks_max: int) -> UUID:
    """An id for one more; the bound holds until this commits. Raises `WebhooksFull`."""
    await tx.execute(_ALONE, {"tenant_id": tenant_id})
    row = (await tx.execute(_COUNT, {"tenant_id": tenant_id})).one()
    if row.there >= webhooks_max:
        raise WebhooksFull(f"there may be {webhooks_max} webhooks; delete one")
    made: UUID = row.id
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
) -> Webhook:
    """A webhook for what comes from now on."""
    values = {
        "id": webhook_id, "tenant_id": tenant_id, "url": url, "description": description, "types": list(types),
        "signing": signing, "keys": json.dumps([_key(sealed, public_key)]), "versions_max": versions_max,
    }  # fmt: skip
    return _webhook((await tx.execute(_INSERT, values)).one())


async def read_webhook(reading: Reading, tenant_id: UUID | None, webhook_id: UUID) -> Webhook:
    """One. Raises `NotFound`, also for somebody else's."""
    row = (await reading.execute(_READ, {"id": webhook_id, "tenant_id": tenant_id})).first()
    if row is None:
        raise _not_found(webhook_id)
    return _webhook(row)


async def list_webhooks(reading: Reading, tenant_id: UUID | None, after: UUID, limit: int) -> list[Webhook]:
    """Up to `limit` in the order in which they were made."""
    rows = await reading.execute(_LIST, {"tenant_id": tenant_id, "after": after, "limit": limit})
    return [_webhook(row) for row in rows]


async def lock_webhook(tx: Transaction, tenant_id: UUID | None, webhook_id: UUID) -> None:
    """Nobody changes it until this commits, nor what it has to deliver. Raises `NotFound`, also for somebody else's."""
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
) -> Webhook:
    """The locked webhook, changed; None leaves what is there. What a disabled one had still to deliver has failed, and can
    be replayed.
    """
    values = {"id": webhook_id, "url": url, "description": description, "state": state}
    row = (await tx.execute(_CHANGE, {**values, "types": None if types is None else list(types)})).one()
    if state == "disabled":
        await fail_pending(tx, webhook_id)
    return _webhook(row)


async def fail_pending(tx: Transaction, webhook_id: UUID) -> None:
    """What waits for an attempt gets none; attempts under way end by themselves."""
    await tx.execute(_FAIL_PENDING, {"id": webhook_id})


async def delete_webhook(tx: Transaction, webhook_id: UUID) -> None:
    """The locked webhook is gone, with its keys; what it delivered is swept."""
    await tx.execute(_DELETE, {"id": webhook_id})
    await fail_pending(tx, webhook_id)


async def rotate_keys(
    tx: Transaction, webhook_id: UUID, *, sealed: str, public_key: str | None, overlap_seconds: float
) -> Webhook:
    """The locked webhook signs by this key first; those before it sign with it for `overlap_seconds`, none longer than it
    was to. Raises `WebhookKeysFull`.
    """
    row = (await tx.execute(_KEYS, {"id": webhook_id, "overlap_seconds": overlap_seconds})).one()
    older = [
        {**key, "until": min(filter(None, (key["until"], row.until.isoformat())), key=datetime.fromisoformat)}
        for key in row.keys
        if overlap_seconds > 0
    ]
    if len(older) >= KEYS_MAX:
        raise WebhookKeysFull(f"{len(older)} keys sign already; wait until one is over, or rotate without an overlap")
    keys = json.dumps([_key(sealed, public_key), *older])
    return _webhook((await tx.execute(_SET_KEYS, {"id": webhook_id, "keys": keys})).one())


def _key(sealed: str, public_key: str | None) -> dict[str, str | None]:
    return {"sealed": sealed, "public_key": public_key, "until": None}


def _webhook(row: Any) -> Webhook:
    return Webhook(**row._mapping)


def _not_found(webhook_id: UUID) -> NotFound:
    return NotFound(f"there is no webhook {webhook_id}")
