"""Deliveries of webhooks: reads, replays, test messages and retention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.log.refusals import LogTruncated
from orchestrator.problems import InvalidState, NotFound
from orchestrator.webhooks.rules import WebhookBusy


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message to a webhook, identified by `number`. `event_id` is its `webhook-id`; `history` holds its last attempts."""

    number: int
    version: int | None
    event_id: UUID
    event_type: str
    state: str
    attempts: int
    next_attempt_at: datetime | None
    attempted_at: datetime | None
    duration_ms: int | None
    response_status: int | None
    response_excerpt: str | None
    error: str | None
    history: Sequence[JsonObject]
    created_at: datetime
    ended_at: datetime | None


_LIST = """
select d.number, d.version, d.event_id, d.event_type, d.state, d.attempts, d.next_attempt_at, d.attempted_at, d.duration_ms,
       d.response_status, d.response_excerpt, d.error, d.history, d.created_at, d.ended_at
from webhook_deliveries d
where d.webhook_id = :webhook_id and d.number < :before and (cast(:state as text) is null or d.state = :state)
order by d.number desc limit :limit
"""
_READ = """
select d.number, d.version, d.event_id, d.event_type, d.state, d.attempts, d.next_attempt_at, d.attempted_at, d.duration_ms,
       d.response_status, d.response_excerpt, d.error, d.history, d.created_at, d.ended_at
from webhook_deliveries d where d.webhook_id = :webhook_id and d.number = :number
"""
# Locked before the check, so that no event of a replayed delivery is truncated before the commit.
_LOCK_FIRST_VERSION = "select version from log_first for no key update"
_ROOM = """
select w.state, (select count(*) from webhook_deliveries d where d.webhook_id = w.id and d.state = 'pending') as pending
from webhooks w where w.id = :webhook_id
"""
_REPLAY_ONE = """
update webhook_deliveries d set
    attempts = case when d.state = 'pending' then d.attempts else 0 end,
    state = 'pending', next_attempt_at = clock_timestamp(), ended_at = null
where d.webhook_id = :webhook_id and d.number = :number and not d.leased
returning d.number, d.version, d.event_id, d.event_type, d.state, d.attempts, d.next_attempt_at, d.attempted_at, d.duration_ms,
       d.response_status, d.response_excerpt, d.error, d.history, d.created_at, d.ended_at
"""
_REPLAY_FAILED = """
with chosen as materialized (
    select d.number from webhook_deliveries d
    where d.webhook_id = :webhook_id and d.state = 'failed' and d.ended_at >= :since and d.version >= :first
    order by d.number limit :limit
)
update webhook_deliveries d set attempts = 0, state = 'pending', next_attempt_at = clock_timestamp(), ended_at = null from chosen
where d.webhook_id = :webhook_id and d.number = chosen.number
"""
_FAILED = """
select count(*) filter (where d.version >= :first) as left, count(*) filter (where d.version < :first) as truncated
from webhook_deliveries d
where d.webhook_id = :webhook_id and d.state = 'failed' and d.ended_at >= :since and d.version is not null
"""
_TEST = """
with numbering as (update webhooks set numbered = numbered + 1 where id = :webhook_id returning id, numbered)
insert into webhook_deliveries as d (webhook_id, number, event_id, event_type)
select id, numbered, uuidv7(), 'webhook.test' from numbering
returning d.number, d.version, d.event_id, d.event_type, d.state, d.attempts, d.next_attempt_at, d.attempted_at, d.duration_ms,
       d.response_status, d.response_excerpt, d.error, d.history, d.created_at, d.ended_at
"""
# A dispatcher that dies between lease and attempt leaves a delivery pending. Those of a deleted webhook, and those of a webhook
# that was disabled with its key, are never leased again. The webhook is locked too: an operator may be enabling it.
_FAIL_ABANDONED = """
with abandoned as materialized (
    select d.webhook_id, d.number from webhook_deliveries d join webhooks w on w.id = d.webhook_id
    where d.state = 'pending' and d.next_attempt_at <= clock_timestamp()
      and (w.state = 'deleted' or w.state = 'disabled' and w.key_expires_at <= clock_timestamp())
    order by d.next_attempt_at limit :limit for no key update of w, d skip locked
)
update webhook_deliveries d set state = 'failed', error = 'webhook_disabled', leased = false, next_attempt_at = null,
                                ended_at = clock_timestamp()
from abandoned a where d.webhook_id = a.webhook_id and d.number = a.number
"""
_SWEEP = """
with old as materialized (
    select d.webhook_id, d.number from webhook_deliveries d
    where d.ended_at < statement_timestamp() - make_interval(secs => :seconds)
      and not exists (select from archive_uses u where u.kind = 'webhook_deliveries') order by d.ended_at limit :limit
), many as materialized (
    select d.webhook_id, d.number from webhooks w cross join lateral (
        select * from webhook_deliveries x
        where x.webhook_id = w.id and x.number <= case when w.state = 'deleted' then w.numbered else w.numbered - :kept end
        order by x.number limit :limit
    ) d where d.ended_at is not null and not exists (select from archive_uses u where u.kind = 'webhook_deliveries') limit :limit
), gone as (
    delete from webhook_deliveries d using (select * from old union select * from many) x
    where d.webhook_id = x.webhook_id and d.number = x.number returning 1
)
select count(*) from gone
"""
_SWEEP_WEBHOOKS = """
delete from webhooks w where w.state = 'deleted'
and not exists (select from webhook_deliveries d where d.webhook_id = w.id)
"""


async def list_deliveries(
    reading: Reading, webhook_id: UUID, *, state: str | None, before: int, limit: int
) -> list[Delivery]:
    """Return up to `limit` deliveries of a webhook with numbers below `before`, newest first."""
    values = {"webhook_id": webhook_id, "state": state, "before": before, "limit": limit}
    return [_delivery(row) for row in await reading.execute(_LIST, values)]


async def read_delivery(reading: Reading, webhook_id: UUID, number: int) -> Delivery:
    """Return one delivery. Raises `NotFound`."""
    row = (await reading.execute(_READ, {"webhook_id": webhook_id, "number": number})).first()
    if row is None:
        raise NotFound(f"this webhook has no delivery {number}")
    return _delivery(row)


async def replay_one(tx: Transaction, webhook_id: UUID, number: int, *, pending_max: int) -> Delivery:
    """Send a delivery again at once; one that had ended starts its schedule anew.

    The caller has locked the log's first version (`lock_first_version`), then the webhook. Raises `NotFound`, `InvalidState`,
    `LogTruncated`, `WebhookBusy`.
    """
    first: int = (await tx.execute(_LOCK_FIRST_VERSION)).scalar_one()
    found = await read_delivery(tx, webhook_id, number)
    await _require_room(tx, webhook_id, pending_max, by_test=found.version is None)
    if found.version is not None and found.version < first:
        raise _truncated(first)
    row = (await tx.execute(_REPLAY_ONE, {"webhook_id": webhook_id, "number": number})).first()
    if row is None:
        raise InvalidState(f"an attempt of delivery {number} is in flight; retry when it has ended", state=found.state)
    return _delivery(row)


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many deliveries are sent again, how many are left for another call, and of how many the event was truncated."""

    replayed: int
    left: int
    truncated: int


async def replay_failed(tx: Transaction, webhook_id: UUID, since: datetime, *, pending_max: int) -> Replayed:
    """Send the deliveries that failed since then again, oldest first, within the bound of pending ones.

    Locks and errors as for `replay_one`.
    """
    first: int = (await tx.execute(_LOCK_FIRST_VERSION)).scalar_one()
    room = await _require_room(tx, webhook_id, pending_max, by_test=False)
    values = {"webhook_id": webhook_id, "since": since, "first": first}
    replayed = (await tx.execute(_REPLAY_FAILED, {**values, "limit": room})).rowcount
    rest = (await tx.execute(_FAILED, values)).one()
    return Replayed(replayed, rest.left, rest.truncated)


async def lock_first_version(tx: Transaction) -> None:
    """Prevent truncation until the transaction ends. Lock order: before a webhook."""
    await tx.execute(_LOCK_FIRST_VERSION)


async def add_test(tx: Transaction, webhook_id: UUID, *, pending_max: int) -> Delivery:
    """Enqueue a test message for the locked webhook, enabled or not. Raises `WebhookBusy`."""
    await _require_room(tx, webhook_id, pending_max, by_test=True)
    return _delivery((await tx.execute(_TEST, {"webhook_id": webhook_id})).one())


async def sweep_deliveries(tx: Transaction, *, seconds: float, kept: int, limit: int) -> int:
    """Delete up to `limit` ended deliveries; return how many.

    Deleted are those that ended more than `seconds` ago, those beyond the newest `kept` of their webhook, and those of deleted
    webhooks. Before that up to `limit` pending ones fail whose lease has ended and that no dispatcher leases again.
    """
    await tx.execute(_FAIL_ABANDONED, {"limit": limit})
    gone: int = (await tx.execute(_SWEEP, {"seconds": seconds, "kept": kept, "limit": limit})).scalar_one()
    if gone == 0:
        await tx.execute(_SWEEP_WEBHOOKS)
    return gone


async def _require_room(tx: Transaction, webhook_id: UUID, pending_max: int, *, by_test: bool) -> int:
    room = (await tx.execute(_ROOM, {"webhook_id": webhook_id})).one()
    if room.state != "enabled" and not by_test:
        raise InvalidState("the webhook is disabled; enable it first", state=room.state)
    if room.pending >= pending_max:
        raise WebhookBusy(
            f"{room.pending} deliveries are pending and the bound is {pending_max}; retry when some have ended"
        )
    return pending_max - int(room.pending)


def _truncated(first: int) -> LogTruncated:
    return LogTruncated(f"the event was truncated; the log begins at version {first}", first_version=first)


def _delivery(row: Any) -> Delivery:
    return Delivery(**row._mapping)
