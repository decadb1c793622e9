"""What the dispatcher of webhooks does in Postgres: positions on, attempts out, outcomes in. Each is one transaction, and any
number of dispatchers may be at it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.webhooks.rules import Attempt
from orchestrator.webhooks.store.webhooks import LIVE_KEYS

HISTORY_MAX = 20
# A tenant's webhook is looked at only while the tenant has events beyond its position; then the tenant's own events are read
# by their index, `batch` of them, whether they are meant or not. Somebody else's lock means that he is at it.
_ADVANCE = """
with due as materialized (
    select w.id, w.tenant_id, w.types, greatest(w.position, f.version - 1) as position, w.numbered, h.version as head,
           case when w.position < f.version - 1 then f.version end as missed_before
    from webhooks w cross join log_head h cross join log_first f
    where w.state = 'enabled' and w.position < h.version and h.leader_id = postgres_leader_id()
      and (w.tenant_id is null or exists (select from log_tenants t where t.tenant_id = w.tenant_id and t.version > w.position))
      and (select count(*) from (select from webhook_deliveries d where d.webhook_id = w.id and d.state = 'pending'
                                 limit :pending_max) waiting) < :pending_max
    order by w.position limit :webhooks_max for no key update of w skip locked
), scanned as materialized (
    select due.id, due.types, due.numbered, l.version, l.event_id, l.event_type from due cross join lateral (
        select version, event_id, event_type from log
        where log.tenant_id = due.tenant_id and log.version > due.position order by log.version limit :batch
    ) l where due.tenant_id is not null
    union all
    select due.id, due.types, due.numbered, l.version, l.event_id, l.event_type from due cross join lateral (
        select version, event_id, event_type from log
        where log.version > due.position order by log.version limit :batch
    ) l where due.tenant_id is null
), meant as (
    select s.id, s.version, s.event_id, s.event_type,
           s.numbered + row_number() over (partition by s.id order by s.version) as number
    from scanned s
    where s.types = '{}' or s.event_type = any(s.types)
       or exists (select from unnest(s.types) family where family like '%.*' and starts_with(s.event_type, left(family, -1)))
), added as (
    insert into webhook_deliveries (webhook_id, number, version, event_id, event_type)
    select id, number, version, event_id, event_type from meant returning webhook_id, number
), reached as (
    select due.id, due.missed_before, count(s.version) as events, max(s.version) as last, due.head
    from due left join scanned s on s.id = due.id group by due.id, due.missed_before, due.head
), moved as (
    update webhooks w set
        position = greatest(w.position, case when r.events < :batch then r.head else r.last end),
        numbered = greatest(w.numbered, coalesce((select max(a.number) from added a where a.webhook_id = w.id), 0)),
        missed_before = coalesce(r.missed_before, w.missed_before)
    from reached r where w.id = r.id returning r.events
)
select (select count(*) from added) as added, count(*) filter (where events >= :batch) as unfinished, count(*) as moved from moved
"""
# By `statement_timestamp()`, for what is volatile is looked up in no index; who claims looks again, at the row that it locked.
_BEHIND = """
select exists (
    select from webhooks w cross join log_head h
    where w.state = 'enabled' and w.position < h.version
      and (w.tenant_id is null or exists (select from log_tenants t where t.tenant_id = w.tenant_id and t.version > w.position))
) as behind, exists (
    select from webhook_deliveries d where d.state = 'pending' and d.next_attempt_at <= statement_timestamp()
) as due
"""
_TIME = """to_char(l.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
# As the relay publishes it (docs/reference/events.md); concat leaves out what is null. The same bytes at every attempt.
_DOCUMENT = f"""
concat('{{"specversion":"1.0","id":"', l.event_id, '","source":"/berth/log","type":', to_json('berth.' || l.event_type),
       ',"time":"', {_TIME}, '","datacontenttype":"application/json","version":"', l.version, '","prevversion":"',
       l.prev_version, '","correlationid":"', l.correlation_id, '","traceparent":"00-',
       replace(l.correlation_id::text, '-', ''), '-', right(replace(l.correlation_id::text, '-', ''), 16), '-01"',
       ',"leaderid":', to_json(l.leader_id), ',"subject":' || to_json(nullif(l.subject, '')),
       ',"tenantid":"' || l.tenant_id || '"', ',"operationkey":' || to_json(nullif(l.operation_key, '')),
       ',"requestid":' || to_json(nullif(l.request_id, '')), ',"data":', l.payload, '}}')"""
# Which webhooks have something pending is found by skipping through the index; each gives no more than it may have under
# way here, then each tenant, and all in turn, so that none keeps another waiting.
_CLAIM = f"""
with recursive waiting(webhook_id) as (
    (select webhook_id from webhook_deliveries where state = 'pending' order by webhook_id limit 1)
    union all
    select (select d.webhook_id from webhook_deliveries d where d.state = 'pending' and d.webhook_id > waiting.webhook_id
            order by d.webhook_id limit 1)
    from waiting where waiting.webhook_id is not null
), busy as (
    select * from unnest(cast(:webhook_ids as uuid[]), cast(:tenant_ids as uuid[]), cast(:numbers as integer[]))
                  as b(webhook_id, tenant_id, number)
), candidates as (
    select d.webhook_id, d.number, d.next_attempt_at, w.tenant_id, d.turn,
           row_number() over (partition by w.tenant_id order by d.turn, d.next_attempt_at) as of_tenant
    from waiting join webhooks w on w.id = waiting.webhook_id and w.state <> 'deleted'
    cross join lateral (
        select x.webhook_id, x.number, x.next_attempt_at, row_number() over (order by x.next_attempt_at) as turn from (
            select * from webhook_deliveries p
            where p.webhook_id = w.id and p.state = 'pending' and p.next_attempt_at <= statement_timestamp()
            order by p.next_attempt_at
            limit greatest(0, :webhook_max - coalesce((select sum(b.number) from busy b where b.webhook_id = w.id), 0))
        ) x
    ) d
), chosen as materialized (
    select c.webhook_id, c.number from candidates c
    where c.of_tenant <= :tenant_max - coalesce(
        (select sum(b.number) from busy b where b.tenant_id is not distinct from c.tenant_id), 0)
    order by c.turn, c.next_attempt_at limit :limit
), locked as materialized (
    select d.webhook_id, d.number from webhook_deliveries d join chosen c on c.webhook_id = d.webhook_id and c.number = d.number
    where d.state = 'pending' and d.next_attempt_at <= clock_timestamp() for no key update of d skip locked
), claimed as (
    update webhook_deliveries d set
        leased = true, claims = d.claims + 1, attempts = d.attempts + 1, attempted_at = clock_timestamp(),
        next_attempt_at = clock_timestamp() + make_interval(secs => :lease_seconds)
    from locked where d.webhook_id = locked.webhook_id and d.number = locked.number
    returning d.*
)
select c.webhook_id, w.tenant_id, c.number, c.claims, c.attempts, c.event_id, c.event_type, c.version, c.created_at,
       w.url, {LIVE_KEYS} as keys, case when l.version is not null then {_DOCUMENT} end as document
from claimed c join webhooks w on w.id = c.webhook_id left join log l on l.version = c.version
"""
_FAILED_WEBHOOK = """
select w.state, w.tenant_id, clock_timestamp() - coalesce(w.failing_since, clock_timestamp()) >=
       make_interval(secs => :failing_seconds_max) as too_long
from webhooks w where w.id = :webhook_id for no key update
"""
_FAILING = """
update webhooks set failing_since = clock_timestamp() where id = :webhook_id and failing_since is null and state = 'enabled'
"""
_WELL = "update webhooks set failing_since = null where id = :webhook_id and failing_since is not null"
_END = """
update webhook_deliveries d set
    leased = false, duration_ms = :duration_ms, response_status = :response_status, response_excerpt = :response_excerpt,
    error = :error, state = :state,
    next_attempt_at = case when :state = 'pending' then clock_timestamp() + make_interval(secs => :pause_seconds) end,
    ended_at = case when :state <> 'pending' then clock_timestamp() end,
    history = case when jsonb_array_length(d.history) >= :history_max then d.history - 0 else d.history end || jsonb_build_array(
        jsonb_build_object(
            'at', to_char(d.attempted_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'duration_ms', cast(:duration_ms as integer), 'response_status', cast(:response_status as integer),
            'error', cast(:error as text)))
where d.webhook_id = :webhook_id and d.number = :number and d.claims = :claims and d.leased
"""
_DISABLE = """
update webhooks set state = 'disabled', disabled_reason = :reason, disabled_at = clock_timestamp(), updated_at = clock_timestamp()
where id = :webhook_id and state = 'enabled' returning tenant_id, url
"""
_STANDING = """
select (select count(*) from webhooks where state = 'enabled') as enabled,
       (select count(*) from webhooks where state = 'disabled') as disabled,
       (select count(*) from webhooks where state = 'enabled' and failing_since is not null) as failing,
       (select count(*) from webhook_deliveries where state = 'pending') as pending,
       (select coalesce(extract(epoch from clock_timestamp() - min(next_attempt_at)), 0)::float8 from webhook_deliveries
        where state = 'pending' and next_attempt_at < statement_timestamp()) as oldest_due_seconds,
       (select coalesce(max(h.version + 1 - c.needs_from), 0) from log_cursors c cross join log_head h where c.kind = 'webhook')
       as lag_versions
"""


@dataclass(frozen=True, slots=True)
class Advance:
    """`added`: deliveries that are new. `unfinished`: webhooks that have more before them; `moved`: those looked at."""

    added: int
    unfinished: int
    moved: int


@dataclass(frozen=True, slots=True)
class Claim:
    """An attempt that is somebody's until its lease ends. `keys`: those that sign, sealed, the newest first. `document` is
    None where the event is gone, and of a test.
    """

    webhook_id: UUID
    tenant_id: UUID | None
    number: int
    claims: int
    attempts: int
    event_id: UUID
    event_type: str
    version: int | None
    created_at: Any
    url: str
    keys: Sequence[Mapping[str, Any]]
    document: str | None


@dataclass(frozen=True, slots=True)
class Busy:
    """How many attempts a dispatcher has under way for a webhook."""

    webhook_id: UUID
    tenant_id: UUID | None
    number: int


@dataclass(frozen=True, slots=True)
class Work:
    """Whether a webhook is behind the log, and whether an attempt is due."""

    behind: bool
    due: bool


async def read_work(reading: Reading) -> Work:
    """What there is to do."""
    return Work(**(await reading.execute(_BEHIND)).one()._mapping)


async def advance(tx: Transaction, *, batch: int, pending_max: int, webhooks_max: int) -> Advance:
    """Move the positions of webhooks on and write down what they are to deliver: of each, `batch` events at most, and
    none while `pending_max` wait. Nothing moves while this Postgres is not accepted (docs/reference/events.md).
    """
    values = {"batch": batch, "pending_max": pending_max, "webhooks_max": webhooks_max}
    return Advance(**(await tx.execute(_ADVANCE, values)).one()._mapping)


async def claim(
    tx: Transaction, busy: Sequence[Busy], *, limit: int, webhook_max: int, tenant_max: int, lease_seconds: float
) -> list[Claim]:
    """Up to `limit` attempts that are due, with what is to be sent. One whose lease has ended is due again."""
    values = {
        "webhook_ids": [one.webhook_id for one in busy], "tenant_ids": [one.tenant_id for one in busy],
        "numbers": [one.number for one in busy], "limit": limit, "webhook_max": webhook_max, "tenant_max": tenant_max,
        "lease_seconds": lease_seconds,
    }  # fmt: skip
    return [Claim(**row._mapping) for row in await tx.execute(_CLAIM, values)]


async def note_success(tx: Transaction, claimed: Claim, attempt: Attempt) -> bool:
    """It is delivered; whether that was still to be told."""
    await tx.execute(_WELL, {"webhook_id": claimed.webhook_id})
    return await _end(tx, claimed, attempt, "succeeded", 0.0)


async def note_failure(
    tx: Transaction, claimed: Claim, attempt: Attempt, pause_seconds: float | None, failing_seconds_max: float
) -> tuple[bool, bool]:
    """It is tried again after the pause, or never: after the last attempt, or where the webhook is not enabled any more (a
    test message gets one attempt). Answers whether that was still to be told, and whether the webhook, which is locked now,
    has failed for too long.
    """
    values = {"webhook_id": claimed.webhook_id, "failing_seconds_max": failing_seconds_max}
    webhook = (await tx.execute(_FAILED_WEBHOOK, values)).one()
    again = pause_seconds is not None and webhook.state == "enabled" and claimed.version is not None
    told = await _end(tx, claimed, attempt, "pending" if again else "failed", pause_seconds or 0.0)
    if not told or claimed.version is None:
        return told, False
    await tx.execute(_FAILING, {"webhook_id": claimed.webhook_id})
    return True, bool(webhook.too_long)


async def disable(tx: Transaction, webhook_id: UUID, reason: str) -> bool:
    """Send it nothing more; whether it was enabled."""
    return (await tx.execute(_DISABLE, {"webhook_id": webhook_id, "reason": reason})).first() is not None


async def _end(tx: Transaction, claimed: Claim, attempt: Attempt, state: str, pause_seconds: float) -> bool:
    done = await tx.execute(
        _END,
        {
            "webhook_id": claimed.webhook_id, "number": claimed.number, "claims": claimed.claims, "state": state,
            "duration_ms": attempt.duration_ms, "response_status": attempt.response_status,
            "response_excerpt": attempt.response_excerpt, "error": attempt.error, "pause_seconds": pause_seconds,
            "history_max": HISTORY_MAX,
        },
    )  # fmt: skip
    return done.rowcount == 1


@dataclass(frozen=True, slots=True)
class Standing:
    """How webhooks are doing. `lag_versions`: of the log, needed by the one that needs most."""

    enabled: int
    disabled: int
    failing: int
    pending: int
    oldest_due_seconds: float
    lag_versions: int


async def read_standing(reading: Reading) -> Standing:
    """All of them together."""
    return Standing(**(await reading.execute(_STANDING)).one()._mapping)


def document_of(claimed: Claim, test: Mapping[str, Any]) -> bytes | None:
    """The bytes to send; None where the event is gone."""
    if claimed.version is None:
        return json.dumps(test, separators=(",", ":")).encode()
    return None if claimed.document is None else claimed.document.encode()
