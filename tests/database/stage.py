"""A fleet with and without a past, and what every route reads in it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.operations.execution import Context
from tests.allocations.seeding import REGION, SLICE_SKU, Seeded, connect, seed
from tests.database import routes_of_claims, routes_of_maintenance, routes_of_reads  # noqa: F401 - their routes are among those below
from tests.database.counting import Counted
from tests.database.routes import ROUTES, Stage
from tests.reservations.holding import ReservationClient

TABLES = ("claims", "reservations", "allocations", "operations", "nodes", "slots", "resources", "outbox", "log_from_0")
SEATS = 3

_ADD_NODES = """
with made as (
    insert into nodes (name, pool_id, region, gpu_model, shape, slot_count, half_slots, unit_base, state, online, free_mask,
                       fit_class, epoch, last_seen_at)
    select 'more-' || k, pool_id, region, gpu_model, shape, 8, 4, 1000000 + 8 * k, 'active', true, 255, fit_class, 1,
           clock_timestamp()
    from nodes cross join generate_series(1, %s) k where id = %s returning *
)
insert into slots (unit, node_id, slot_index, numa_half)
select unit_base + i, id, i, i / 4 from made, generate_series(0, 7) i
"""
# Another tenant's, on the last slots of a hundred nodes: half of them holds, half confirmed windows that have not begun.
_LIVE = """
with other as (
    insert into tenants (name) values ('live') returning id
), drawn as materialized (
    select nextval('reservation_positions') as position, other.id as tenant_id, n.id as node_id, n.unit_base + 7 as unit,
           row_number() over () %% 2 = 0 as held, clock_timestamp() - interval '1 s' as at,
           clock_timestamp() + interval '1 day' as later
    from nodes n cross join other where n.name ~ '^more-[0-9]{1,2}$'
), claimed as (
    insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, fence, created_at)
    select node_id, tenant_id, 'reservation', reservation_id(0, position), int8multirange(int8range(unit, unit + 1)),
           tstzrange(later, later + interval '1 day'), nextval('fences'), at
    from drawn
)
insert into reservations (id, position, tenant_id, holder_id, resources, sku, gpus, region, gpus_held, starts_at, ends_at,
    hold_until, expires_at, operation_key, operation_fingerprint, correlation_id, held_at, confirmed_at, held_event, state,
    waits_for, waits_since, waits_until)
select reservation_id(0, position), position, tenant_id, 'holder', array['slot:' || node_id || ':7'], %(sku)s, 1,
       %(region)s, 1, later, later + interval '1 day', at + interval '1 h', case when held then at + interval '1 h' end,
       'live-' || position, sha256('live'), uuidv7(), at, case when not held then at end, uuidv7(),
       case when held then 'hold' else 'confirmed' end, case when held then 'holder' else 'window' end, at,
       case when held then at + interval '1 h' else later + interval '1 day' end
from drawn
"""
# One slot of each of the other nodes is held for a day.
_CLAIMED = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, fence, created_at)
select n.id, gen_random_uuid(), 'reservation', gen_random_uuid(), int8multirange(int8range(n.unit_base + 6, n.unit_base + 7)),
       tstzrange(later, later + interval '1 day'), nextval('fences'), clock_timestamp() - interval '1 day'
from nodes n cross join (select clock_timestamp() + interval '1 day') l(later) where n.name ~ '^more-[0-9]{3,}$'
"""
# What the routes have made goes again; the past stays.
_CLEAR = (
    "delete from claims where created_at > %(began)s",
    "delete from reservations where held_at > %(began)s",
    "delete from allocations where requested_at > %(began)s",
    "delete from operations where created_at > %(began)s",
    "delete from maintenance_units",
    "delete from maintenance_windows",
    "delete from outbox",
    "delete from node_tasks",
    "update nodes set state = 'active' where state = 'cordoned'",
    "select refresh_node_fit(id) from nodes where free_mask <> case when name ~ '^more-[0-9]{1,2}$' then 127 else 255 end",
    "update tenant_quotas set gpus_used = 0",
)


def seed_history(url: str, nodes: int) -> Seeded:
    """A fleet whose tables only this test analyses: nodes, slots and resources."""
    seeded = seed(url, slice_nodes=2, metal_nodes=2)
    with connect(url) as connection:
        connection.execute("select setval('unit_numbers', 10000000)")
        connection.execute("insert into resources (id) select 'seat-' || n from generate_series(1, %s) n", (SEATS,))
        connection.execute(_ADD_NODES, (nodes, seeded.nodes[0].id))
        with connection.transaction():
            connection.execute("set local session_replication_role = replica")
            connection.execute(_LIVE, {"sku": SLICE_SKU, "region": REGION})
            connection.execute("select refresh_node_fit(id) from nodes")
        for table in TABLES:
            connection.execute(f"alter table {table} set (autovacuum_enabled = false)".encode())
        # The fleet is known, what happens in it is not.
        connection.execute("vacuum (analyze) nodes, slots, resources")
    return seeded


def claim_slots(url: str) -> int:
    """How many claims were inserted since the table was analysed."""
    with connect(url) as connection:
        return connection.execute(_CLAIMED).rowcount


async def read_by_each_route(context: Context, url: str, seeded: Seeded, began: datetime) -> dict[str, Counter[str]]:
    """The rows of each table that each route reads, in the one session of the context. What it makes goes again."""
    found = {}
    with connect(url) as connection:
        client = ReservationClient(url, context, seeded, CatalogueCache(context.database, 3_600.0))
        counted = Counted(context.database, connection)
        for name, go in ROUTES.items():
            await go(Stage(client, counted, connection, began))
            found[name] = counted.rows
            for statement in _CLEAR:
                connection.execute(statement.encode(), {"began": began} if "%(began)s" in statement else None)
    return found
