"""Fills a migrated database with a fleet, tenants and keys in bulk, by SQL: what the admin API would take hours for.

The fleet is laid out as a real one: several regions, two GPU models sold as slices, and bare-metal nodes beside them.
Every node has eight slots in two NUMA halves. Tables that grow are vacuumed and analysed, as autovacuum would in time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import psycopg

REGIONS = ("ap-1", "eu-1", "eu-2", "us-1", "us-2")
SLICE_MODELS = ("H100", "H200")
SLOTS = 8
IMAGE = "ubuntu-24.04"
SSH_PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICvBwJKizisYM/acETASrukZc8YSiqEDP9S92PHXmHZa bench"

_CATALOGUE = f"""
insert into images (name, url, sha256, shapes)
values ('{IMAGE}', 'https://images.invalid/{IMAGE}', repeat('ab', 32), array['gpu_slice', 'baremetal']);
insert into skus (name, shape, gpu_model, allowed_counts, default_image)
values ('h100.slice', 'gpu_slice', 'H100', '{{1,2,4,8}}', '{IMAGE}'),
       ('h200.slice', 'gpu_slice', 'H200', '{{1,2,4,8}}', '{IMAGE}'),
       ('h100.metal', 'baremetal', 'H100', '{{8}}', '{IMAGE}');
insert into regions (name, display_name) select r, r from unnest(%(regions)s::text[]) r;
insert into pools (region, gpu_model, shape)
select r, m.model, m.shape
from unnest(%(regions)s::text[]) r
cross join (values ('H100', 'gpu_slice'), ('H200', 'gpu_slice'), ('H100', 'baremetal')) m(model, shape);
"""

# Every tenth node is bare metal; the rest alternate between the slice pools, so that all pools grow alike.
_NODES = """
with slices as (
    select id, region, gpu_model, shape, row_number() over (order by id) - 1 as place from pools where shape = 'gpu_slice'
), metals as (
    select id, region, gpu_model, shape, row_number() over (order by id) - 1 as place from pools where shape = 'baremetal'
), placed as (
    select k, coalesce(s.id, m.id) as pool_id, coalesce(s.region, m.region) as region,
           coalesce(s.gpu_model, m.gpu_model) as gpu_model, coalesce(s.shape, m.shape) as shape
    from generate_series(1, %(nodes)s) k
    left join slices s on k %% 10 <> 0 and s.place = (k + k / 10) %% (select count(*) from slices)
    left join metals m on k %% 10 = 0 and m.place = (k / 10) %% (select count(*) from metals)
)
insert into nodes (name, pool_id, region, gpu_model, shape, slot_count, half_slots, unit_base, state, online, free_mask,
                   fit_class, epoch, enrolled_at, last_seen_at)
select 'node-' || k, pool_id, region, gpu_model, shape, %(slots)s, %(slots)s / 2,
       k::bigint * %(slots)s, 'active', true, (1::bigint << %(slots)s) - 1, (%(slots)s / 2) * 64 + %(slots)s / 2, 1,
       clock_timestamp(), clock_timestamp()
from placed
"""

_SLOTS = """
insert into slots (unit, node_id, slot_index, numa_half)
select n.unit_base + i, n.id, i, case when i < n.half_slots then 0 else 1 end
from nodes n cross join generate_series(0, %(slots)s - 1) i
"""

_TENANT = """
with made as (insert into tenants (name) values (%(name)s) returning id),
     quota as (insert into tenant_quotas (tenant_id) select id from made),
     api_key as (
        insert into api_keys (tenant_id, role, name, prefix, secret_hash)
        select id, 'tenant', 'benchmark', %(prefix)s, %(digest)s from made
     )
insert into ssh_keys (tenant_id, name, public_key, fingerprint)
select id, 'benchmark', %(public_key)s, 'SHA256:benchmark' from made
returning id, tenant_id
"""


@dataclass(frozen=True)
class BenchTenant:
    """A tenant with what it needs to create allocations."""

    tenant_id: str
    ssh_key_id: str
    api_key: str


def seed_fleet(database_url: str, nodes: int) -> None:
    """Catalogue and `nodes` online nodes with every slot free."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        with psycopg.ClientCursor(connection) as cursor:  # several statements in one text: bound on the client's side
            cursor.execute(_CATALOGUE, {"regions": list(REGIONS)})
        connection.execute(_NODES, {"nodes": nodes, "slots": SLOTS})
        connection.execute(_SLOTS, {"slots": SLOTS})
        connection.execute("select setval('unit_numbers', (select max(unit) from slots))")
        connection.execute("vacuum (analyze)")


def seed_tenants(database_url: str, count: int) -> list[BenchTenant]:
    """Tenants without a quota, each with an API key and an SSH key."""
    made = []
    with psycopg.connect(database_url, autocommit=True) as connection:
        for number in range(count):
            secret = hashlib.sha256(f"benchmark {number}".encode()).hexdigest()
            api_key = f"berth_bench{number:03d}_{secret}"
            values = {
                "name": f"tenant-{number}",
                "prefix": f"bench{number:03d}",
                "digest": hashlib.sha256(api_key.encode()).digest(),
                "public_key": SSH_PUBLIC_KEY,
            }
            row = connection.execute(_TENANT, values).fetchone()
            assert row is not None
            made.append(BenchTenant(tenant_id=str(row[1]), ssh_key_id=str(row[0]), api_key=api_key))
        connection.execute("analyze")
    return made


def seed_operator(database_url: str) -> str:
    """An operator's API key."""
    api_key = f"berth_benchadm_{hashlib.sha256(b'benchmark operator').hexdigest()}"
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "insert into api_keys (role, name, prefix, secret_hash) values ('admin', 'benchmark', 'benchadm', %s)",
            (hashlib.sha256(api_key.encode()).digest(),),
        )
    return api_key


def empty_fleet(database_url: str) -> None:
    """Take every placement back, so that the next trial finds the fleet as the first did."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update tenant_quotas set gpus_used = 0")
        connection.execute("vacuum (analyze) tenant_quotas")
    empty_tables(database_url)


def empty_tables(database_url: str) -> None:
    """As `empty_fleet`, for the tables that the bare rows are written to."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("truncate allocations, allocation_timeline, claims, operations, outbox cascade")
        connection.execute(
            "update nodes set free_mask = (1::bigint << slot_count) - 1,"
            " fit_class = half_slots * 64 + slot_count - half_slots where free_mask <> (1::bigint << slot_count) - 1"
        )
        connection.execute("vacuum (analyze) nodes, allocations, claims, operations, outbox, allocation_timeline")
        connection.execute("checkpoint")
