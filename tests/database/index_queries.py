"""For each index of the tables that a create writes, and of BMCs: a statement that it serves, and values to explain it with.

Unique keys and exclusion constraints that guard rows are listed too where statements read by them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from orchestrator.allocations.store import due, health, rows
from orchestrator.catalogue import inventory_store
from orchestrator.database import census
from orchestrator.operations.store import retirement
from orchestrator.reservations.store import starting
from orchestrator.sites.store import agents, bmc_tasks, bmcs

TABLES = (
    "allocations", "allocation_timeline", "bmc_credentials", "bmc_tasks", "claims", "node_bmcs", "nodes", "operations", "slots",
)  # fmt: skip
GUARDS = {
    "allocations_pkey", "bmc_credentials_pkey", "bmc_tasks_pkey", "claims_pkey", "creation_runs_once", "node_bmcs_pkey",
    "node_name_unique", "nodes_pkey", "one_bmc_task", "one_occupant", "one_right", "slot_unique", "slots_pkey",
    "timeline_transition_once",
}  # fmt: skip
"""Indexes that refuse rows; none of them exists for reading alone."""

_VALUES: dict[str, Any] = {
    "limit": 100, "grace_seconds": 60.0, "notice_seconds": 60.0, "id": UUID(int=1), "after": 0, "scope": UUID(int=1),
    "key": "none", "tenant_id": UUID(int=1), "site_id": UUID(int=1), "node_id": UUID(int=1), "agent_id": UUID(int=1),
    "run_id": UUID(int=1), "serial": "01", "lease_fence": 1, "known": [], "reach_limit": 9, "grace": 60.0, "nodes": [UUID(int=1)],
}  # fmt: skip
_PAGE_OF_TENANT = """
select * from allocations a where (a.tenant_id, a.id) > (:tenant_id, cast(:id as uuid)) and a.tenant_id <= :tenant_id
  and a.id > '00000000-0000-0000-0000-000000000000' order by a.tenant_id, a.id limit :limit
"""
QUERIES = {
    "allocation_timeline_pkey": ("read_timeline", rows._TIMELINE),
    "allocations_by_reservation": (
        "consume_with_last_claim",
        "select a.id from allocations a where a.reservation_id = :id order by a.id",
    ),
    "allocations_by_tenant": ("list_allocations", _PAGE_OF_TENANT),
    "allocations_ending": ("find_ending", due._ENDING),
    "allocations_live_by_node": ("take_census", census._ALLOCATIONS),
    "allocations_overdue": ("find_overdue_allocations", due._OVERDUE),
    "allocations_unhealthy": ("find_past_health_deadline", health._DUE),
    "allocations_waiting_for_units": ("find_nodes_to_start", starting._WAITING),
    "bmc_credentials_by_recipient": ("retire_agent", agents._FORGET_SEALED),
    "bmc_tasks_by_node": ("newest_tasks", bmc_tasks._NEWEST),
    "bmc_tasks_issued": ("lease_bmc_tasks", bmc_tasks._LEASE),
    "bmc_tasks_open": ("find_overdue", bmc_tasks._OVERDUE),
    "bmc_tasks_requested": ("find_ready", bmc_tasks._READY),
    "bmcs_by_site": ("list_bmcs", bmcs._LIST_OF_SITE.replace(":after", ":node_id")),
    "claims_blocked": ("take_census", census._GPUS),
    "claims_by_owner": ("lock_reservation", "select node_id from claims where owner_id = :id and closed_at is null"),
    "claims_open_by_node": (
        "refresh_node_fit",
        "select units from claims where node_id = :id and closed_at is null and (booked or occupied)",
    ),
    "claims_open_by_resource": (
        "rivals_for",
        "select * from claims where closed_at is null and resource_id = any (array['seat-1'])",
    ),
    "claims_overdue": ("find_overdue_allocations", due._OVERDUE),
    "claims_windowed": (
        "nodes_in_window",
        """select distinct c.node_id from claims c
           where c.closed_at is null and c.node_id is not null and (c.owner_kind = 'reservation' or not c.booked
                 or not upper_inf(c.during) or lower(c.during) > c.created_at)""",
    ),
    "node_units_unique": ("list_resources", "select * from nodes where unit_base > 0 order by unit_base limit :limit"),
    "nodes_by_fit": (
        "lock_best_node",
        """select id from nodes where pool_id = 1 and fit_class = 260 and state = 'active' and online
           order by placement_rank, id limit 1""",
    ),
    "nodes_by_pool_layout": ("read_catalogue", inventory_store._LAYOUTS),
    "nodes_out_of_service": ("find_stranded", starting._STRANDED),
    "nodes_without_agent": (
        "find_turned",
        "select id from nodes where driver = 'redfish' and enrolled_at is null order by id limit :limit",
    ),
    "nodes_without_slots": (
        "list_nodes",
        "select * from nodes where slot_count = 0 and id > :id order by id limit :limit",
    ),
    "operation_runs_once": ("ask_operation", "select status from operations where scope = :scope and key = :key"),
    "operations_retiring": ("retire_operations", retirement._RETIRE_OPERATIONS),
    "slots_out_of_service": (
        "nodes_in_window",
        "select node_id, bit_or(1::bigint << slot_index) from slots where state = 'out_of_service' group by 1",
    ),
}
"""By index: the function that reads by it, and its statement."""

# The statement of live_allocations, which EXPLAIN does not show, and its planner setting.
_LIVE = "select a.state, count(*), min(a.waits_since) from allocations a where a.state not in ('released', 'failed') group by 1"

_FILL = """
with placed as materialized (
    select n.id as node_id, n.unit_base + slot as unit, slot, nextval('claims_id_seq') as claim_id, uuidv7() as id,
           (select min(id::text)::uuid from tenants) as tenant_id, clock_timestamp() - interval '1 h' as at
    from nodes n cross join generate_series(0, %(filled)s - 1) slot
), claim as (
    insert into claims (id, node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence, created_at)
    overriding system value
    select claim_id, node_id, tenant_id, 'allocation', id, int8multirange(int8range(unit, unit + 1)), tstzrange(at, null),
           true, at, nextval('fences'), at + interval '1 s' from placed
), allocation as (
    insert into allocations (id, tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, ssh_public_keys,
        node_id, claim_id, operation_key, operation_fingerprint, correlation_id, requested_at, state, row_version, active_at,
        waits_for, waits_since)
    select id, tenant_id, 'h100.slice', 'gpu_slice', 'H100', 1, 'eu-1', 'ubuntu-24.04', 1, array['key'], node_id, claim_id,
           'k-' || claim_id, sha256('k'), id, at, 'active', 3, at, 'tenant', at from placed
), line as (
    insert into allocation_timeline (allocation_id, at, kind, to_state, row_version, actor_kind)
    select id, at, 'transition', state, version, 'tenant'
    from placed cross join (values ('requested', 1), ('provisioning', 2), ('active', 3)) s(state, version)
)
insert into operations (scope, key, fingerprint, status, code, body, subject_id, created_at, retire_after)
select tenant_id, 'k-' || claim_id, sha256('k'), 201, 'ok', repeat('x', 300), id, at, at + interval '1 day' from placed
"""

# Ten sites share the nodes. Each BMC had a task; of one in a hundred it is open, and every second one of these is signed.
_FILL_BMCS = """
insert into sites (id, name, recovery_key, lease_fence, lease_agent, lease_run, lease_until)
select md5('site' || n)::uuid, 'site-' || n, decode(repeat('11', 32), 'hex'), 1, md5('agent' || n)::uuid, gen_random_uuid(),
       clock_timestamp() + interval '1 h' from generate_series(0, 9) n;
insert into site_agents (id, site_id, name) select lease_agent, id, 'a' from sites;
insert into node_bmcs (node_id, site_id, url, certificate_sha256, username, generation, changed_by)
select id, md5('site' || number % 10)::uuid, 'https://192.0.2.7', decode(repeat('ab', 32), 'hex'), 'root', 1, 'test'
from (select id, row_number() over (order by unit_base) as number from nodes) n;
insert into bmc_credentials (node_id, generation, recipient, sealed)
select node_id, 1, recipient, repeat('x', 130)
from node_bmcs cross join lateral (values (site_id), (md5(site_id || 'a')::uuid), (md5(site_id || 'b')::uuid)) r(recipient);
insert into bmc_tasks (node_id, site_id, kind, requested_by, ended_at, outcome)
select node_id, site_id, 'look', 'test', clock_timestamp(), 'completed' from node_bmcs cross join generate_series(1, 2);
insert into bmc_tasks (node_id, site_id, kind, requested_by, waits_for, waits_since, waits_until, fence, envelope, issued_at)
select b.node_id, b.site_id, 'look', 'test', 'lease', clock_timestamp(), clock_timestamp() + interval '10 min', f.fence,
       case when f.fence is not null then '{}'::jsonb end, case when f.fence is not null then clock_timestamp() end
from (select node_id, site_id, row_number() over (order by node_id) as number from node_bmcs) b,
     lateral (select case when b.number % 200 = 0 then 1 end as fence) f where b.number % 100 = 0;
"""


def fill(connection: psycopg.Connection[Any], filled: int) -> None:
    """Put an active allocation on the first `filled` slots of each node, and analyse the tables."""
    connection.execute("set session_replication_role = replica")
    connection.execute(_FILL, {"filled": filled})
    connection.execute("reset session_replication_role")
    connection.execute("vacuum (analyze) claims, allocations, allocation_timeline, operations, nodes, slots")


def fill_bmcs(connection: psycopg.Connection[Any]) -> None:
    """Give each node a BMC in one of ten sites, with sealed passwords and tasks, and analyse the tables."""
    connection.execute(_FILL_BMCS)
    connection.execute("vacuum (analyze) sites, site_agents, node_bmcs, bmc_credentials, bmc_tasks")


def explain(connection: psycopg.Connection[Any], index: str, options: str = "costs off") -> str:
    """The plan of the index's statement, as a text."""
    statement = _LIVE if index == "allocations_live_by_node" else QUERIES[index][1]
    values = {**_VALUES, "clock": datetime.now(UTC) - timedelta(seconds=1)}
    with connection.transaction():
        connection.execute(
            f"set local enable_seqscan = {'off' if index == 'allocations_live_by_node' else 'on'}".encode()
        )
        return explain_statement(connection, statement, values, options)


def explain_statement(
    connection: psycopg.Connection[Any], statement: str, values: dict[str, Any], options: str = "costs off"
) -> str:
    """The plan of a statement with `:name` parameters, as a text."""
    bound = re.sub(r"(?<![:\w]):([a-z_]\w*)", r"%(\1)s", statement.replace("%", "%%"))
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(f"explain ({options}) {bound}".encode(), values)
        return "\n".join(line for (line,) in cursor)
