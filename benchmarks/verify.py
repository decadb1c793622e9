"""`berth verify` over 100,000 allocations that are all over, with all that they left: the limit is 6 s (DESIGN §10).

Claims, timelines, tasks, operations and events are there as the commands leave them, several generations on each unit, so
that every check has its whole history to scan. A verdict that is not kept fails the benchmark: it measured nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg

from benchmarks.figures import Figure
from benchmarks.running import bench
from orchestrator.verification import Bounds, Verdict, run_checks

ALLOCATIONS = 100_000
NODES = 2_000
SECONDS_MAX = 6.0

# Generation g of a unit is active from g minutes to g minutes and 50 seconds after the beginning, so that none overlap.
_PLAN = """
create unlogged table planned as
select n, uuidv7() as id, uuidv7() as correlation, s.unit, s.node_id, t.id as tenant_id, t.tenants, 'key-' || n as key,
       clock_timestamp() - interval '12 hours' + make_interval(mins => (n / units)::integer) as asked
from generate_series(0, %(count)s - 1) n
cross join (select count(*) as units from slots) total
join (select unit, node_id, row_number() over (order by unit) - 1 as place from slots) s on s.place = n %% units
join (select id, row_number() over (order by id) - 1 as place, count(*) over () as tenants from tenants) t
     on t.place = n %% t.tenants
order by n
"""
_WIPED = """{"released": true, "hard_stopped": false, "wiped": true, "leases_released": true}"""
# Ids of tasks and events are arithmetic: drawing a random one costs more than its row.
_CLAIMS = f"""
insert into claims (id, node_id, tenant_id, owner_kind, owner_id, units, during, booked, occupied, fence, created_at,
                    closed_at, occupied_from, occupied_until)
overriding system value
select n + 1, node_id, tenant_id, 'allocation', id, int8multirange(int8range(unit, unit + 1)), tstzrange(asked, null),
       false, false, 2 * n + 2, asked, asked + interval '50 s', asked, asked + interval '50 s'
from planned;
insert into allocations (id, tenant_id, state, row_version, sku, shape, gpu_model, gpus, region, image, price_version,
    ssh_public_keys, node_id, claim_id, operation_key, operation_fingerprint, correlation_id, requested_at, active_at,
    releasing_at, released_at, release_result)
select id, tenant_id, 'released', 5, 'h100.slice', 'gpu_slice', 'H100', 1, 'eu-1', 'ubuntu-24.04', 1, '{{}}',
       node_id, n + 1, key, decode(repeat('00', 32), 'hex'), correlation, asked, asked + interval '20 s',
       asked + interval '40 s', asked + interval '50 s', '{_WIPED}'
from planned;
"""
_TIMELINE = """
insert into allocation_timeline (allocation_id, at, kind, from_state, to_state, row_version, actor_kind, fence)
select id, asked + make_interval(secs => step.at), 'transition', step.came, step.went, step.version, step.actor,
       2 * n + step.fence
from planned cross join (values (1, 0, null, 'requested', 'tenant', 1), (2, 1, 'requested', 'provisioning', 'worker', 1),
    (3, 20, 'provisioning', 'active', 'worker', 1), (4, 40, 'active', 'releasing', 'tenant', 2),
    (5, 50, 'releasing', 'released', 'worker', 2)) step(version, at, came, went, actor, fence)
order by n, step.version;
"""
_TASKS = f"""
insert into node_tasks (id, node_id, node_epoch, type, allocation_id, fence, state, envelope, not_before, expires_at,
                        queued_at, dispatched_at, finished_at, result)
select lpad(to_hex(2 * n + kind.fence), 32, '0')::uuid, node_id, 1, kind.type, id, 2 * n + kind.fence, 'completed',
       '{{"payload_sha256": ""}}', asked, asked + interval '5 min',
       asked + make_interval(secs => kind.at), asked + make_interval(secs => kind.at),
       asked + make_interval(secs => kind.at + 5), kind.result::jsonb
from planned cross join (values
    ('slice.vm_provision', 1, 1, '{{"connection": {{}}}}'), ('slice.vm_release', 2, 41, '{_WIPED}'))
    kind(type, fence, at, result);
select setval('fences', 2 * (select count(*) from planned));
"""
_OPERATIONS = """
insert into operations (scope, key, fingerprint, status, code, body, subject_id, created_at, retire_after)
select tenant_id, key, decode(repeat('00', 32), 'hex'), 201, 'ok', jsonb_build_object('allocation_id', id)::text, id,
       asked, asked + interval '1 day'
from planned;
"""
# What `log_advance` would make of these events. Tenants take turns, so the version before of a tenant is arithmetic; twelve
# million rows through the outbox take as long as all other rows.
_EVENTS = """
select log_extend(h.version + 4 * (select count(*) from planned)) from log_head h;
insert into log (version, prev_version, outbox_id, event_id, event_type, occurred_at, correlation_id, tenant_id, subject,
                 operation_key, leader_id, payload)
select h.version + 4 * p.n + kind.place,
       case when kind.place > 1 then h.version + 4 * p.n + kind.place - 1
            when p.n >= p.tenants then h.version + 4 * (p.n - p.tenants) + 4
            else coalesce(c.version, 0) end,
       o.last_value + 4 * p.n + kind.place, lpad(to_hex(h.version + 4 * p.n + kind.place), 32, '0')::uuid, kind.type,
       p.asked + make_interval(secs => kind.at),
       p.correlation, p.tenant_id, 'allocations/' || p.id, p.key, h.leader_id, jsonb_build_object('allocation_id', p.id)
from planned p left join log_tenants c on c.tenant_id = p.tenant_id cross join log_head h
cross join outbox_id_seq o
cross join (values (1, 0, 'provisioning.requested'), (2, 20, 'provisioning.active'),
    (3, 40, 'provisioning.releasing.requested'), (4, 50, 'provisioning.releasing.completed')) kind(place, at, type)
order by p.n, kind.place;
insert into log_tenants (tenant_id, version)
select p.tenant_id, max(h.version + 4 * p.n + 4) from planned p cross join log_head h group by p.tenant_id
on conflict (tenant_id) do update set version = excluded.version;
update log_head set version = version + 4 * (select count(*) from planned);
select setval('outbox_id_seq', last_value + 4 * (select count(*) from planned)) from outbox_id_seq;
"""


# What one connection fills while the other fills the rest.
_SIDES = ((_CLAIMS, _TASKS, _TIMELINE), (_EVENTS,))
_FILLED = ("claims", "allocations", "allocation_timeline", "node_tasks", "log")
_INDEXES = """
select i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) from pg_index i
where i.indrelid = any (%s::regclass[]) and not exists (select from pg_constraint c where c.conindid = i.indexrelid)
"""


def seed_history(database_url: str, allocations: int, *, operations: bool = True) -> None:
    """Put so many finished allocations into a database with a fleet and tenants; `operations`: with their records.

    Two connections fill tables without triggers, and without the indexes that no constraint needs: these are built afterwards.
    """
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        while connection.execute("select log_advance(50000)").fetchone() != (0,):
            pass
        connection.execute(_PLAN, {"count": allocations})
        connection.execute("alter table planned add primary key (n)")
        connection.execute("analyze planned")
        indexes = connection.execute(_INDEXES, (list(_FILLED),)).fetchall()
        for name, _ in indexes:
            connection.execute(f"drop index {name}".encode())
        _together(database_url, _SIDES)
        definitions = [definition.replace(" ON ONLY ", " ON ") for _, definition in indexes]
        _together(database_url, (definitions[::2], definitions[1::2]))
        if operations:
            connection.execute(_OPERATIONS.encode())
            while connection.execute("select audit_advance(10000)").fetchone() != (0,):
                pass
        connection.execute("drop table planned")
        connection.execute("vacuum (analyze)")


def _together(database_url: str, sides: Iterable[Sequence[str]]) -> None:
    """Execute the statements of each side in order, all sides at once over separate connections."""

    def fill(statements: Sequence[str]) -> None:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("set synchronous_commit = off")
            connection.execute("set session_replication_role = replica")
            connection.execute("set maintenance_work_mem = '256MB'")
            for statement in statements:
                connection.execute(statement.encode())

    with ThreadPoolExecutor() as threads:
        list(threads.map(fill, sides))


def print_each(verdicts: Iterable[Verdict]) -> None:
    """The seconds of each check, and how much it checked."""
    for verdict in verdicts:
        print(f"{verdict.promise:<15} {verdict.seconds:6.2f} s  {verdict.checked}", flush=True)


def time_checks(database_url: str, bounds: Bounds | None = None) -> tuple[float, str]:
    """Seconds of all checks, and a note about the slowest; with `--each` every check is printed.

    Raises RuntimeError if one is not kept: what was seeded is not as commands leave it.
    """
    began = time.perf_counter()
    verdicts = run_checks(database_url, bounds)
    seconds = time.perf_counter() - began
    if "--each" in sys.argv:
        print_each(verdicts)
    broken = [f"{verdict.promise}: {verdict.violations[0]}" for verdict in verdicts if not verdict.kept]
    if broken:
        raise RuntimeError(f"what was seeded is not as commands leave it: {broken}")
    slowest = max(verdicts, key=lambda verdict: verdict.seconds)
    return seconds, f"slowest: {slowest.promise}, {slowest.seconds:.2f} s"


def run(quick: bool) -> list[Figure]:
    """One figure; `quick` checks a tenth, without a limit."""
    count = ALLOCATIONS // 10 if quick else ALLOCATIONS
    with bench() as servers:
        url, _ = servers.fleet(NODES)
        seed_history(url, count)
        seconds, note = time_checks(url)
    return [Figure(f"verify_{count}_allocations", seconds, "s", None if quick else SECONDS_MAX, note=note)]


if __name__ == "__main__":
    figures = run("--quick" in sys.argv)
    for figure in figures:
        print(figure.line())
    sys.exit(0 if all(figure.ok for figure in figures) else 1)
