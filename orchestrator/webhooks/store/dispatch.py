"""The dispatcher's SQL: enqueue deliveries for new events, and lease due deliveries. Any number of dispatchers may run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict
from uuid import UUID

from berth.process.json_objects import JsonMapping
from orchestrator.database.transactions import Reading, Transaction

# A suspended tenant's webhooks pause: nothing is read or sent for them until it is active again. An operators' webhook is not
# read or sent from the instant on at which its key expires; a sweeper disables it.
# A tenant's webhook is read only while the tenant has events beyond its position; then `batch` of the tenant's events are
# read by their index, whether or not their type matches. A locked webhook is being advanced by another dispatcher; skip it.
_LOCK_BEHIND = """
select w.id from webhooks w cross join log_head h
    where w.state = 'enabled' and w.position < h.version and h.leader_id = postgres_leader_id()
      and (w.key_expires_at is null or w.key_expires_at > clock_timestamp())
      and (w.tenant_id is null or exists (select from log_tenants t where t.tenant_id = w.tenant_id and t.version > w.position)
                                  and exists (select from tenants t where t.id = w.tenant_id and t.state = 'active'))
      and (select count(*) from (select from webhook_deliveries d where d.webhook_id = w.id and d.state = 'pending'
                                 limit :pending_max) waiting) < :pending_max
    order by w.position limit :webhooks_max for no key update of w skip locked
"""
# Of the locked webhooks; in a statement apart, because PostgreSQL 18 crashes where one that locks rows finds a newer version of a
# row and then chooses partitions of the log by a value that it has read.
_ADVANCE = """
with due as materialized (
    select w.id, w.tenant_id, w.types, greatest(w.position, f.version - 1) as position, w.numbered, h.version as head,
           case when w.position < f.version - 1 then f.version end as missed_before
    from webhooks w cross join log_head h cross join log_first f where w.id = any(cast(:webhook_ids as uuid[]))
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
), matching as (
    select s.id, s.version, s.event_id, s.event_type,
           s.numbered + row_number() over (partition by s.id order by s.version) as number
    from scanned s
    where s.types = '{}' or s.event_type = any(s.types)
       or exists (select from unnest(s.types) family where family like '%.*' and starts_with(s.event_type, left(family, -1)))
), added as (
    insert into webhook_deliveries (webhook_id, number, version, event_id, event_type)
    select id, number, version, event_id, event_type from matching returning webhook_id, number
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
# `statement_timestamp()`, because a volatile function cannot use an index; leasing checks again on the locked row.
_PENDING_WORK = """
select exists (
    select from webhooks w cross join log_head h
    where w.state = 'enabled' and w.position < h.version
      and (w.key_expires_at is null or w.key_expires_at > clock_timestamp())
      and (w.tenant_id is null or exists (select from log_tenants t where t.tenant_id = w.tenant_id and t.version > w.position)
                                  and exists (select from tenants t where t.id = w.tenant_id and t.state = 'active'))
) as behind, exists (
    select from webhook_deliveries d where d.state = 'pending' and d.next_attempt_at <= statement_timestamp()
) as due
"""
# Webhooks with pending deliveries are found by a skip scan of the index. Each webhook, then each tenant, contributes at most its
# bound of attempts in flight, and webhooks take turns, so that none delays another.
_LEASE = """
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
         and (w.key_expires_at is null or w.key_expires_at > clock_timestamp())
         and (w.tenant_id is null or exists (select from tenants t where t.id = w.tenant_id and t.state = 'active'))
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
), taken as (
    update webhook_deliveries d set
        leased = true, claims = d.claims + 1, attempts = d.attempts + 1, attempted_at = clock_timestamp(),
        next_attempt_at = clock_timestamp() + make_interval(secs => :lease_seconds)
    from locked where d.webhook_id = locked.webhook_id and d.number = locked.number
    returning d.webhook_id, d.number
)
select webhook_id, number from taken
"""
# What was leased, in a statement apart as `_ADVANCE` is. `document` is the event as the relay publishes it
# (docs/reference/events.md), the same bytes at every attempt; concat leaves out nulls.
_LEASED = """
select c.webhook_id, w.tenant_id, c.number, c.claims as lease_number, c.attempts, c.event_id, c.event_type, c.version,
       c.created_at, c.attempted_at, w.url,
       (select coalesce(jsonb_agg(key order by place), '[]')
        from jsonb_array_elements(w.keys) with ordinality live(key, place)
        where key ->> 'until' is null or cast(key ->> 'until' as timestamptz) > clock_timestamp()) as keys,
       case when l.version is not null then concat(
           '{"specversion":"1.0","id":"', l.event_id, '","source":"/berth/log","type":', to_json('berth.' || l.event_type),
           ',"time":"', rfc3339(l.occurred_at),
           '","datacontenttype":"application/json","version":"', l.version, '","prevversion":"', l.prev_version,
           '","correlationid":"', l.correlation_id, '","traceparent":"00-',
           replace(l.correlation_id::text, '-', ''), '-', right(replace(l.correlation_id::text, '-', ''), 16), '-01"',
           ',"leaderid":', to_json(l.leader_id), ',"subject":' || to_json(nullif(l.subject, '')),
           ',"tenantid":"' || l.tenant_id || '"', ',"operationkey":' || to_json(nullif(l.operation_key, '')),
           ',"requestid":' || to_json(nullif(l.request_id, '')), ',"data":', l.payload, '}'
       ) end as document
from unnest(cast(:webhook_ids as uuid[]), cast(:numbers as bigint[])) as taken(webhook_id, number)
     join webhook_deliveries c on c.webhook_id = taken.webhook_id and c.number = taken.number
     join webhooks w on w.id = c.webhook_id left join log l on l.version = c.version
"""


@dataclass(frozen=True, slots=True)
class Advance:
    """`added`: new deliveries. `moved`: webhooks advanced; `unfinished`: those of them with more events ahead."""

    added: int
    unfinished: int
    moved: int


class SealedKey(TypedDict):
    """A signing key as stored: sealed, with its public half (Ed25519), and until when it signs (null: newest)."""

    sealed: str
    public_key: str | None
    until: str | None


@dataclass(frozen=True, slots=True)
class LeasedDelivery:
    """A delivery leased by a dispatcher until its lease ends. `keys`: the live signing keys, newest first.

    `attempted_at`: when it was leased, by the database's clock, which dates the attempt.
    `document` is None for a test message, and for an event that was truncated.
    """

    webhook_id: UUID
    tenant_id: UUID | None
    number: int
    lease_number: int
    attempts: int
    event_id: UUID
    event_type: str
    version: int | None
    created_at: datetime
    attempted_at: datetime
    url: str
    keys: Sequence[SealedKey]
    document: str | None


@dataclass(frozen=True, slots=True)
class InFlight:
    """The number of attempts that a dispatcher has in flight for a webhook."""

    webhook_id: UUID
    tenant_id: UUID | None
    number: int


@dataclass(frozen=True, slots=True)
class PendingWork:
    """Whether a webhook is behind the log, and whether a delivery is due."""

    behind: bool
    due: bool


async def read_work(reading: Reading) -> PendingWork:
    """Return whether there is anything to enqueue or to send."""
    return PendingWork(**(await reading.execute(_PENDING_WORK)).one()._mapping)


async def advance(tx: Transaction, *, batch: int, pending_max: int, webhooks_max: int) -> Advance:
    """Advance webhooks and enqueue their deliveries: at most `batch` events each, none while `pending_max` are pending.

    Nothing moves until this PostgreSQL timeline is accepted (docs/reference/events.md).
    """
    bounds = {"pending_max": pending_max, "webhooks_max": webhooks_max}
    webhook_ids = list((await tx.execute(_LOCK_BEHIND, bounds)).scalars())
    if not webhook_ids:
        return Advance(added=0, unfinished=0, moved=0)
    return Advance(**(await tx.execute(_ADVANCE, {"webhook_ids": webhook_ids, "batch": batch})).one()._mapping)


async def lease(
    tx: Transaction,
    in_flight: Sequence[InFlight],
    *,
    limit: int,
    webhook_max: int,
    tenant_max: int,
    lease_seconds: float,
) -> list[LeasedDelivery]:
    """Lease up to `limit` due deliveries. A delivery whose lease has ended is due again."""
    values = {
        "webhook_ids": [each.webhook_id for each in in_flight], "tenant_ids": [each.tenant_id for each in in_flight],
        "numbers": [each.number for each in in_flight], "limit": limit, "webhook_max": webhook_max,
        "tenant_max": tenant_max, "lease_seconds": lease_seconds,
    }  # fmt: skip
    taken = (await tx.execute(_LEASE, values)).all()
    if not taken:
        return []
    leased = {"webhook_ids": [row.webhook_id for row in taken], "numbers": [row.number for row in taken]}
    return [LeasedDelivery(**row._mapping) for row in await tx.execute(_LEASED, leased)]


def document_of(delivery: LeasedDelivery, test: JsonMapping) -> bytes | None:
    """Return the bytes to send (`test` for a test message); None if the event was truncated."""
    if delivery.version is None:
        return json.dumps(test, separators=(",", ":")).encode()
    return None if delivery.document is None else delivery.document.encode()
