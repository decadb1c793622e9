"""More is due between two rounds than one batch of a sweeper holds: each round ends one batch, and nothing is left."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import psycopg
import pytest

from migrations.roles import Role
from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.operations.execution import Context
from tests.allocations.driving import rows_of, run_with
from tests.allocations.seeding import add_node, add_tenant, connect, create_many, make_context, write_signing_key
from tests.billing.payments import make_due, make_prepaid, top_up
from tests.databases import as_role
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats, wanted_gpus
from tests.reservations.passing_time import let_come
from tests.reservations.turning_over.consuming import starting
from worker.settings import Settings
from worker.sweepers.reservation_starter import ReservationStarter
from worker.sweepers.table import make_sweepers
from worker.workflows.starting import WorkflowStarter

MANY = 5
BATCH = 2
ROUNDS = 3
LONG_AGO = "clock_timestamp() - interval '1 d'"


class RescuesRecorded:
    """In the place of a `WorkflowStarter`."""

    def __init__(self) -> None:
        self.rescued: list[uuid.UUID] = []

    async def start_rescue(self, kind: str, allocation_id: uuid.UUID) -> None:
        """Record it."""
        self.rescued.append(allocation_id)


Prepare = Callable[[ReservationClient], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """How `MANY` items become due for a sweeper, and the query for those that are left."""

    sweeper: str
    prepare: Prepare
    left: str
    batches_max: int = 1


async def allocations_ended(client: ReservationClient) -> None:
    create_many(client.url, client.seeded, MANY)
    _change(client, f"update allocations set ends_at = {LONG_AGO}, requested_at = {LONG_AGO} - interval '1 d'")


async def allocations_ending(client: ReservationClient) -> None:
    create_many(client.url, client.seeded, MANY)
    _change(client, "update allocations set ends_at = clock_timestamp() + interval '30 s'")


async def allocations_overdue(client: ReservationClient) -> None:
    create_many(client.url, client.seeded, MANY)
    _change(client, f"update allocations set waits_until = {LONG_AGO}")


async def tasks_expired(client: ReservationClient) -> None:
    for allocation_id in create_many(client.url, client.seeded, MANY):
        await begin_provisioning(client.context, allocation_id, f"provisioning-{allocation_id}")
    _change(client, f"update node_tasks set expires_at = {LONG_AGO}, not_before = {LONG_AGO} - interval '1 h'")


async def windows_over(client: ReservationClient) -> None:
    ends_at = datetime.now(UTC) + timedelta(hours=1)
    for number in range(MANY):
        held = await client.held(client.slot(number), ends_at=ends_at)
        assert (await client.confirm(held)).status == 200
    let_come(client.url, ends_at)


async def starts_due(client: ReservationClient) -> None:
    starts_at = datetime.now(UTC) + timedelta(hours=1)
    for _ in range(MANY):
        await starting(client, starts_at=starts_at)
    let_come(client.url, starts_at)


async def ended_before_a_restore(client: ReservationClient) -> None:
    create_many(client.url, client.seeded, MANY)
    _change(
        client,
        "with made as (insert into restores (written_by, leader_id, head_version, without_export, closed_at)"
        " values ('1', '1', 1, 'none', clock_timestamp()) returning epoch)"
        " insert into restore_replays (epoch, kind, subject_id, version, ended_at)"
        " select epoch, 'release', a.id, 1, clock_timestamp() from made, allocations a",
    )


async def retries_ordered(client: ReservationClient) -> None:
    _change(
        client,
        "insert into dead_letters (consumer, version, reason, detail, excerpt, tries, first_at, retry_asked_at)"
        " select 'berth-worker', n, 'refused', 'no', '{}', 1, clock_timestamp(), clock_timestamp()"
        " from generate_series(900, 904) n",
    )


async def balances_due(client: ReservationClient) -> None:
    for number in range(MANY):
        with psycopg.connect(client.url, autocommit=True) as connection:
            tenant_id = add_tenant(connection, f"prepaid-{number}").tenant_id
        await top_up(client.context, tenant_id, 1_000)
        await make_prepaid(client.context, tenant_id, 10)
        make_due(client.url, tenant_id)


async def approvals_overdue(client: ReservationClient) -> None:
    _change(
        client,
        "insert into approvals (action, subject_id, requested_by, requested_role, requested_break_glass, waits_until)"
        f" select 'api_key.revoke', uuidv7(), uuidv7(), 'admin', false, {LONG_AGO} from generate_series(1, {MANY})",
    )


async def maintenance_due(client: ReservationClient) -> None:
    _change(
        client,
        "insert into maintenance_windows (starts_at, ends_at, reason, waits_for, waits_since, waits_until)"
        f" select at, 'tomorrow', 'why', 'start', at, at from (select {LONG_AGO} as at) long_ago, generate_series(1, {MANY})",
    )


async def faults_over(client: ReservationClient) -> None:
    _change(
        client,
        "insert into fault_reports (tenant_id, allocation_id, node_id, slots, symptom, evidence, replace, reported_by,"
        " replacement_id, waits_for, waits_since, waits_until) select uuidv7(), uuidv7(), n.id, '{0}', 'slow', 'e', true, 't',"
        f" uuidv7(), 'replacement', {LONG_AGO}, {LONG_AGO} from generate_series(1, {MANY}),"
        " (select id from nodes limit 1) n",
    )


async def vlans_left(client: ReservationClient) -> None:
    _change(
        client,
        "insert into network_vlans (region, vlan, network_id, left_at)"
        f" select r.name, 1 + n, uuidv7(), {LONG_AGO} from generate_series(1, {MANY}) n, (select name from regions limit 1) r",
    )


async def history_over(client: ReservationClient) -> None:
    _change(
        client,
        "insert into hardware_history (serial, kind, happened, slots, actor, detail, happened_at)"
        " select 'SERIAL', 'gpu', 'seen', '{}', 'worker:discovery', 'd', clock_timestamp() - interval '6 years'"
        f" from generate_series(1, {MANY})",
    )


async def reservations_stranded(client: ReservationClient) -> None:
    for _ in range(MANY):
        await confirmed(client)
    _change(client, "update nodes set online = false")
    _add_node(client)


async def confirmed(client: ReservationClient, gpus: int = 1) -> None:
    """A reservation that has begun."""
    assert (await client.confirm(await client.held(wanted=wanted_gpus(gpus)))).status == 200


def _add_node(client: ReservationClient) -> None:
    with connect(client.url) as connection:
        row = connection.execute("select id from pools where shape = 'gpu_slice'").fetchone()
        assert row is not None
        add_node(connection, row[0], uuid.uuid4().hex, "gpu_slice")


def _change(client: ReservationClient, statement: str) -> None:
    with connect(client.url) as connection:
        connection.execute(statement.encode())


STRANDED = "select from claims c join nodes n on n.id = c.node_id where c.closed_at is null and not n.online"


async def outages_over(client: ReservationClient) -> None:
    create_many(client.url, client.seeded, MANY)
    _change(
        client,
        f"set session_replication_role = replica; update allocations set state = 'active', active_at = {LONG_AGO},"
        f" requested_at = {LONG_AGO}, waits_for = 'tenant', waits_since = {LONG_AGO}, waits_until = null, health = 'degraded',"
        f" health_cause = 'guest_down', health_since = {LONG_AGO}, proof_of_life_at = {LONG_AGO}, health_until = {LONG_AGO}",
    )


CASES = (
    Case("restore_replays", ended_before_a_restore, "select from restore_replays where done_at is null"),
    Case("ended_allocations", allocations_ended, "select from allocations where state = 'requested'"),
    Case("ending_notices", allocations_ending, "select from allocations where ending_told_at is null"),
    Case("overdue_allocations", allocations_overdue, "select from allocations where state = 'requested'"),
    Case("expired_tasks", tasks_expired, "select from node_tasks where state = 'queued'"),
    Case("windows_over", windows_over, "select from reservations where state = 'confirmed'"),
    Case("due_starts", starts_due, "select from reservations where state = 'confirmed'"),
    Case("stranded_reservations", reservations_stranded, STRANDED),
    Case("dead_letters", retries_ordered, "select from dead_letters where retry_asked_at is not null"),
    Case("approvals", approvals_overdue, "select from approvals where state = 'pending'"),
    Case("health", outages_over, "select from allocations where health = 'degraded'"),
    Case("fault_reports", faults_over, "select from fault_reports where waits_for is not null"),
    Case("left_vlans", vlans_left, "select from network_vlans"),
    Case("hardware_history", history_over, "select from hardware_history"),
    Case("maintenance", maintenance_due, "select from maintenance_windows where state = 'scheduled'"),
    Case("balances", balances_due, "select from balances where look_at <= clock_timestamp()", batches_max=10),
)
ELSEWHERE = {
    "overdue_holds", "retired_reservations", "operations", "deleted_keys", "offline_nodes",
    "inventories", "lost_workflows", "temporal_store",
}  # fmt: skip
"""Those of tests/worker/test_sweeps_of_many.py, and of test_rescue.py."""
WITHOUT = {
    "audit": "tests/audit/test_chain.py",
    "log": "one partition a round",
    "metering_lag": "sets gauges",
    "census": "sets gauges",
    "late_starts": "tests/reservations/turning_over/test_waiting_for_units.py and the turns of its cursor",
    "units_to_start": "makes up for a transaction that passes units on",
    "topologies": "tests/discovery/test_taking.py; one task for each node",
    "probes": "tests/discovery/probes/test_taking.py; one task for each node",
    "consoles": "tests/consoles/test_sweeping.py; the sessions of a process are bounded",
    "burn_ins": "tests/nodes/burn_ins; an operator requests each",
    "deploy_runs": "tests/sites/test_runs.py; an operator requests each, one for each node",
    "deploy_tasks": "tests/deploy_system/test_tasks.py; an operator or a workflow requests each, one for each node",
    "firmware_updates": "tests/sites/updates; an operator requests each, one for each node",
    "drains": "tests/nodes/states/test_drains.py; an operator orders each",
    "gpu_resets": "tests/nodes/gpu_resets; an operator requests each",
    "attestations": "tests/nodes/attestations; an operator requests each",
    "bmc_tasks": "tests/sites; an operator requests each",
    "bmc_liveness": "tests/sites/test_bmc_liveness.py; a round takes at most its batch, by node",
    "sites": "sets gauges",
    "maintenance_tasks": "tests/nodes/maintenance_tasks; one for each node of a window",
    "orphans": "tests/allocations/test_orphans.py; each waits for an operator's decision",
}
"""Sweepers without a case of several batches, each with what it does instead or where it is tested."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sweeper)
def test_each_round_ends_one_batch_until_nothing_is_left(database_url: str, tmp_path: Path, case: Case) -> None:
    seeded = seed_with_seats(database_url)
    settings = Settings(
        database_url=as_role(database_url, Role.WORKER), nats_url="nats://127.0.0.1:1", temporal_address="127.0.0.1:1",
        task_signing_key_file=write_signing_key(tmp_path / "key"), temporal_payload_key_file=tmp_path / "none",
        sweep_batch_max=BATCH,
    )  # fmt: skip

    async def scene(context: Context) -> None:
        await case.prepare(ReservationClient(database_url, context, seeded, CatalogueCache(context.database, 60.0)))
        assert len(rows_of(database_url, case.left)) == MANY
        worker = make_context(settings.database_url)
        table = make_sweepers(worker, cast(WorkflowStarter, RescuesRecorded()), settings)
        (sweeper,) = (one for one in table if one.name == case.sweeper)
        try:
            for rounds in range(1, ROUNDS + 1):
                await sweeper.run()
                assert len(rows_of(database_url, case.left)) == max(0, MANY - rounds * BATCH * case.batches_max)
        finally:
            await worker.database.close()

    run_with(database_url, scene)


def test_stranded_reservations_that_cannot_move_do_not_delay_later_ones(database_url: str) -> None:
    """More than a batch of them need a whole node, and no whole node is free; the last one needs one slot."""
    seeded = seed_with_seats(database_url, slice_nodes=BATCH + 2)

    async def scene(client: ReservationClient) -> None:
        for _ in range(BATCH + 1):
            await confirmed(client, 8)
        await confirmed(client)
        _change(client, "update nodes set online = false")
        _add_node(client)
        await client.held(wanted=wanted_gpus())
        starter = ReservationStarter(client.context, client.catalogue, BATCH)
        for _ in range(2):
            await starter.move_stranded()
        assert len(rows_of(database_url, STRANDED)) == BATCH + 1
        _add_node(client)
        for _ in range(2):
            await starter.move_stranded()
        assert len(rows_of(database_url, STRANDED)) == BATCH, "the turns begin again"

    as_client(database_url, seeded, scene)


def test_every_sweeper_has_a_case_or_a_reason(database_url: str, tmp_path: Path) -> None:
    settings = Settings(
        database_url=as_role(database_url, Role.WORKER), nats_url="nats://127.0.0.1:1", temporal_address="127.0.0.1:1",
        task_signing_key_file=write_signing_key(tmp_path / "key"), temporal_payload_key_file=tmp_path / "none",
    )  # fmt: skip

    async def scene(context: Context) -> None:
        names = [one.name for one in make_sweepers(context, cast(WorkflowStarter, None), settings)]
        assert sorted(names) == sorted({*(case.sweeper for case in CASES), *ELSEWHERE, *WITHOUT})

    run_with(database_url, scene)
