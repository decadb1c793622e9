"""Fills a database with tenants and with active allocations, by SQL: rows as commands leave them once a guest is active."""

from __future__ import annotations

import psycopg

# Each tenant has a quota, an API key without a known secret, and an SSH key.
_TENANTS = """
with made as (
    insert into tenants (name) select 'tenant-of-' || n from generate_series(1, %(count)s) n returning id, name
), quotas as (
    insert into tenant_quotas (tenant_id) select id from made
), keys as (
    insert into api_keys (tenant_id, role, name, prefix, secret_hash)
    select id, 'tenant', 'unused', 'of' || substr(name, 11), sha256(convert_to(name, 'UTF8')) from made
)
insert into ssh_keys (tenant_id, name, public_key, fingerprint)
select id, 'unused', 'ssh-ed25519 AAAA', 'SHA256:' || name from made
"""

# On the first slots of every node, so that each node has room left. Tenants take turns.
_PLAN = """
create unlogged table planned as
select row_number() over (order by s.unit) - 1 as n, uuidv7() as id, uuidv7() as correlation, s.unit, s.node_id,
       x.region, x.gpu_model, t.id as tenant_id, 'in-use-' || s.unit as key, clock_timestamp() - interval '1 hour' as asked
from slots s join nodes x on x.id = s.node_id and x.shape = 'gpu_slice'
join (select id, row_number() over (order by id) - 1 as place, count(*) over () as tenants from tenants) t
     on t.place = s.unit %% t.tenants
where s.slot_index < %(of_each)s
"""
_ROWS = """
insert into claims (id, node_id, tenant_id, owner_kind, owner_id, units, during, booked, occupied, fence, created_at,
                    occupied_from)
overriding system value
select b.claims + n + 1, node_id, tenant_id, 'allocation', id, int8multirange(int8range(unit, unit + 1)), tstzrange(asked, null),
       false, true, b.fences + n + 1, asked, asked
from planned cross join base b;
insert into allocations (id, tenant_id, state, row_version, sku, shape, gpu_model, gpus, region, image, price_version,
    ssh_public_keys, node_id, claim_id, operation_key, operation_fingerprint, correlation_id, requested_at, active_at, connection,
    waits_for, waits_since)
select id, tenant_id, 'active', 3, lower(gpu_model) || '.slice', 'gpu_slice', gpu_model, 1, region, 'ubuntu-24.04', 1, '{}',
       node_id, b.claims + n + 1, key, decode(repeat('00', 32), 'hex'), correlation, asked, asked + interval '20 s',
       '{"host": "192.0.2.1", "port": 2222, "user": "berth", "host_key": "ssh-ed25519 AAAA"}', 'tenant', asked + interval '20 s'
from planned cross join base b;
insert into allocation_timeline (allocation_id, at, kind, from_state, to_state, row_version, actor_kind, fence)
select id, asked + make_interval(secs => step.at), 'transition', step.came, step.went, step.version, step.actor, b.fences + n + 1
from planned cross join base b cross join (values (1, 0, null, 'requested', 'tenant'),
    (2, 1, 'requested', 'provisioning', 'worker'), (3, 20, 'provisioning', 'active', 'worker'))
    step(version, at, came, went, actor)
order by n, step.version;
insert into node_tasks (id, node_id, node_epoch, type, allocation_id, fence, state, envelope, not_before, expires_at, queued_at,
                        dispatched_at, finished_at, result)
select lpad(to_hex(b.fences + n + 1), 32, '0')::uuid, node_id, 1, 'slice.vm_provision', id, b.fences + n + 1, 'completed',
       '{"payload_sha256": ""}', asked, asked + interval '5 min', asked + interval '1 s', asked + interval '1 s',
       asked + interval '6 s', '{"connection": {}}'
from planned cross join base b;
update tenant_quotas q set gpus_used = u.gpus
from (select tenant_id, count(*) as gpus from planned group by tenant_id) u where u.tenant_id = q.tenant_id;
select setval('fences', (select fences from base) + (select count(*) from planned));
select setval(pg_get_serial_sequence('claims', 'id'), (select claims from base) + (select count(*) from planned));
select log_extend(h.version + 2 * (select count(*) from planned)) from log_head h;
insert into log (version, prev_version, outbox_id, event_id, event_type, occurred_at, correlation_id, tenant_id, subject,
                 operation_key, leader_id, payload)
select e.version, coalesce(lag(e.version) over (partition by e.tenant_id order by e.version), c.version, 0), outbox_id,
       lpad(to_hex(e.version), 32, '0')::uuid, type, at, correlation, e.tenant_id, 'allocations/' || id, key, leader_id,
       jsonb_build_object('allocation_id', id)
from (
    select h.version + 2 * n + kind.place as version, o.last_value + 2 * n + kind.place as outbox_id, kind.type,
           p.asked + make_interval(secs => kind.at) as at, p.correlation, p.tenant_id, p.id, p.key, h.leader_id
    from planned p cross join log_head h cross join outbox_id_seq o
    cross join (values (1, 0, 'provisioning.requested'), (2, 20, 'provisioning.active')) kind(place, at, type)
) e left join log_tenants c on c.tenant_id = e.tenant_id
order by e.version;
insert into log_tenants (tenant_id, version)
select tenant_id, max(version) from log where tenant_id is not null group by tenant_id
on conflict (tenant_id) do update set version = excluded.version;
update log_head set version = version + 2 * (select count(*) from planned);
select setval('outbox_id_seq', last_value + 2 * (select count(*) from planned)) from outbox_id_seq;
"""
# With triggers: they count operations.
_OPERATIONS = """
insert into operations (scope, key, fingerprint, status, code, body, subject_id, created_at, retire_after)
select tenant_id, key, decode(repeat('00', 32), 'hex'), 201, 'ok', jsonb_build_object('allocation_id', id)::text, id, asked,
       asked + interval '1 day'
from planned
"""
# Each statement sees what the one before did, so the places that were taken before the first are kept.
_BASE = """
create unlogged table base as
select (select coalesce(max(id), 0) from claims) as claims, (select last_value from fences) as fences
"""


def seed_more_tenants(database_url: str, count: int) -> None:
    """So many tenants that send nothing."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        connection.execute(_TENANTS, {"count": count})
        connection.execute("vacuum (analyze) tenants, tenant_quotas, api_keys, ssh_keys")


def seed_active(database_url: str, of_each: int) -> int:
    """Active allocations of one GPU on the first slots of every node of slices, shared by the tenants; how many there are.

    No trigger plays: masks of nodes and quotas are set afterwards, as the triggers would have left them.
    """
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        while connection.execute("select log_advance(50000)").fetchone() != (0,):
            pass
        connection.execute(_PLAN, {"of_each": of_each})
        connection.execute(_BASE.encode())
        connection.execute("analyze planned")
        connection.execute("set session_replication_role = replica")
        for statement in _ROWS.split(";\n"):
            if statement.strip():
                connection.execute(statement.encode())
        connection.execute("set session_replication_role = origin")
        connection.execute(_OPERATIONS.encode())
        while connection.execute("select audit_advance(10000)").fetchone() != (0,):
            pass
        connection.execute("select refresh_node_fit(id) from nodes")
        row = connection.execute("select count(*) from planned").fetchone()
        connection.execute("drop table planned, base")
        connection.execute("vacuum (analyze)")
    assert row is not None
    return int(row[0])
