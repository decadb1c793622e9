"""What deploy systems, the issuer and the sweeper read often is read by an index in a filled fleet."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg

from benchmarks.seeding import seed_fleet
from orchestrator.nodes.deploy_systems import store, task_store
from tests.allocations.seeding import connect
from tests.database.index_queries import explain_statement

NODES = 500
# Each node was inspected three times, one of twenty is being inspected now; the agent of each has a task as well.
FILL = """
insert into deploy_systems (
    node_id, deploy_epoch, token_hash, smbios_uuid, macs, tpm_required, certificate_seconds, permitted_by, expires_at, used_at,
    key_sha256, csr_pem, serial, pem, not_after, authority_key_sha256, hello_at, hello, ended_at, ended_by)
select n.id, e, sha256(convert_to(n.id || '-' || e, 'UTF8')), n.id, array['m'], false, 600, 'admin:1', now() + interval '1 h',
       now(), sha256('k'), 'csr', n.id || '-' || e, 'pem', now() + interval '1 h', sha256('a'), now(), '{}',
       case when e < 4 then now() end, case when e < 4 then 'superseded' end
from nodes n cross join generate_series(1, 4) e where e < 4 or abs(hashtext(n.id::text)) % 20 = 0;
insert into node_tasks (id, node_id, node_epoch, deploy_epoch, type, fence, envelope, not_before, expires_at, state, finished_at)
select gen_random_uuid(), n.id, 1, case when e > 0 then e end, 'metal.inspect', 1, '{}', now(), now() + interval '1 h',
       case when e between 1 and 3 then 'expired' else 'queued' end, case when e between 1 and 3 then now() end
from nodes n cross join generate_series(0, 4) e where e < 4 or abs(hashtext(n.id::text)) % 20 = 0;
insert into deploy_tasks (node_id, deploy_epoch, type, parameters, seconds_max, requested_by, task_id, issued_at, waits_for,
                          waits_since, waits_until, ended_at, outcome, failure)
select t.node_id, t.deploy_epoch, t.type, '{}', 60, 'admin:1', t.id, now(), case when e then 'deploy_system' end,
       case when e then now() end, case when e then now() + interval '1 h' end, case when not e then now() end,
       case when not e then 'failed' end, case when not e then 'not_reported' end
from node_tasks t cross join lateral (select t.state = 'queued' as e) o where t.deploy_epoch is not null;
analyze deploy_systems, deploy_tasks, node_tasks
"""
VALUES: dict[str, Any] = {
    "node_id": UUID(int=1), "deploy_epoch": 4, "known": [], "serial": "x", "id": UUID(int=1), "most": 100, "limit": 100,
}  # fmt: skip
READ = {
    "lease_deploy_task": (task_store._LEASE, "one_live_task_of_deploy_system"),
    "end_permission": (store._SUPERSEDE_TASKS, "one_live_task_of_deploy_system"),
    "read_standing": (store._STANDING, "deploy_certificate_unique"),
    "issue_pending_deploy_systems": (store._PENDING, "deploy_certificates_pending"),
    "advance_deploy_task": (task_store._READ_OPEN, "one_deploy_task"),
    "find_open_deploy_tasks": (task_store._FIND_OPEN, "one_deploy_task"),
}


def filled(url: str, nodes: int) -> psycopg.Connection[Any]:
    """A database in which every node has deploy systems."""
    seed_fleet(url, nodes)
    connection = connect(url)
    connection.execute("set session_replication_role = replica")
    for statement in FILL.split(";\n"):
        connection.execute(statement.encode())
    return connection


def test_every_statement_is_served_by_an_index(database_url: str) -> None:
    with filled(database_url, NODES) as connection:
        plans = {name: explain_statement(connection, statement, VALUES) for name, (statement, _) in READ.items()}
    assert {name: plan for name, plan in plans.items() if READ[name][1] not in plan} == {}
