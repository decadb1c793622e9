"""Fills a database with reservations that have ended: rows, closed claims, operations, events and allocations, by SQL.

As if they had run their course in the last days: of each four one was cancelled, one expired, one became an allocation
that is released by now, and the window of one passed. None is past its retention.
"""

from __future__ import annotations

import psycopg

BATCH = 100_000

# Each row is drawn once and goes into every table. Deadlines and windows lie in the past, retirements in the future.
_PAST = """
with owners as (
    select id, row_number() over (order by name) - 1 as place from tenants
), grounds as (
    select id, unit_base, region, gpu_model, row_number() over (order by unit_base) - 1 as place
    from nodes where shape = 'gpu_slice'
), sizes as (
    select (select count(*) from owners) as tenants, (select count(*) from grounds) as nodes
), drawn as materialized (
    select nextval('reservation_positions') as position, nextval('claims_id_seq') as claim, o.id as tenant_id, n,
           g.id as node_id, g.region, g.gpu_model, g.unit_base + n / s.nodes %% 8 as unit,
           (array['cancelled', 'expired', 'consumed', 'released'])[n %% 4 + 1] as state,
           now() - interval '6 days' + n %% 500000 * interval '1 s' as at,
           uuidv7() as held_event, uuidv7() as ended_event, uuidv7() as allocation
    from generate_series(%(first)s::bigint, %(last)s::bigint) n cross join sizes s
    join owners o on o.place = n %% s.tenants
    join grounds g on g.place = n %% s.nodes
), past as materialized (
    select *, reservation_id(0, position) as id, at + interval '10 min' as ended from drawn
), claimed as (
    insert into claims (id, node_id, tenant_id, owner_kind, owner_id, units, during, booked, fence, created_at, closed_at,
                        occupied_from, occupied_until)
    overriding system value
    select claim, node_id, tenant_id, case when state = 'consumed' then 'allocation' else 'reservation' end,
           case when state = 'consumed' then allocation else id end, int8multirange(int8range(unit, unit + 1)),
           tstzrange(at, ended), false, nextval('fences'), at, ended,
           case when state = 'consumed' then at end, case when state = 'consumed' then ended end
    from past
), allocated as (
    insert into allocations (id, tenant_id, state, row_version, sku, shape, gpu_model, gpus, region, image, price_version,
        ssh_public_keys, node_id, claim_id, operation_key, operation_fingerprint, correlation_id, requested_at, active_at,
        releasing_at, released_at, ends_at, reservation_id)
    select allocation, tenant_id, 'released', 5, lower(gpu_model) || '.slice', 'gpu_slice', gpu_model, 1, region,
           'ubuntu-24.04', 1, '{}', node_id, claim, 'past-use-' || position, sha256('past'), uuidv7(), at, at, ended, ended,
           ended,
           past.id
    from past where state = 'consumed'
), remembered as (
    insert into operations (scope, key, fingerprint, status, code, body, subject_id, created_at, retire_after)
    select tenant_id, 'past-' || position, sha256('past'), 201, 'ok', '{}', id, at, now() + interval '1 day' from past
), logged as (
    insert into log (version, prev_version, outbox_id, event_id, event_type, occurred_at, correlation_id, tenant_id,
        subject, operation_key, leader_id, payload)
    select %(head)s + 2 * (n - %(first)s) + e.place, 0, 0, e.id, e.type, at, uuidv7(), tenant_id, 'reservations/' || past.id,
           'past-' || position, 'past', jsonb_build_object('reservation_id', past.id)
    from past cross join lateral (values (1, held_event, 'reservation.held'), (2, ended_event, 'reservation.' || state))
         as e(place, id, type)
)
insert into reservations (id, position, tenant_id, holder_id, resources, gpus_held, starts_at, ends_at, hold_until,
    expires_at, operation_key, operation_fingerprint, correlation_id, held_at, confirmed_at, held_event, state, ended_at,
    ended_event, retire_after, row_version)
select id, position, tenant_id, 'holder', array['node:' || node_id], 1, at, ended, ended,
       case when state = 'expired' then ended end, 'past-' || position, sha256('past'), uuidv7(), at,
       case when state = 'released' then at end, held_event, state, ended, ended_event, ended + interval '7 days', 2
from past
"""


def fill_past(database_url: str, count: int) -> None:
    """So many reservations that have ended, shared by the tenants that there are. Nothing is analysed afterwards."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        # Their transitions and counts are not to be played: they are over.
        connection.execute("set session_replication_role = replica")
        connection.execute("set synchronous_commit = off")
        row = connection.execute("select version, log_extend(version + %s) from log_head", (2 * count,)).fetchone()
        assert row is not None
        head = int(row[0])
        for first in range(1, count + 1, BATCH):
            last = min(count, first + BATCH - 1)
            place = {"first": first, "last": last, "head": head + 2 * (first - 1)}
            connection.execute(_PAST, place)
        connection.execute("update log_head set version = version + %s", (2 * count,))


def vacuum_past(database_url: str) -> None:
    """What autovacuum does in time."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("vacuum (analyze) claims, reservations, allocations, operations, log")
