"""Discoveries are issued when due, one at a time, and taken in once; drift takes slots out of service and gives them back."""

from __future__ import annotations

import asyncio
import uuid

from node_agent.protocol import FailureCode
from orchestrator.nodes.commands.topologies import approve_topology, issue_discovery, take_discovery
from orchestrator.nodes.topology.judging import Taken
from orchestrator.nodes.topology.queries import count_topologies, find_due_nodes, find_ended_discoveries
from orchestrator.operations.execution import Context
from tests.allocations.driving import ADMIN, completed, report, row_of, rows_of, run_with
from tests.allocations.reconciling import admin_operation, kept, reconcile, slots_out_of_service
from tests.allocations.reconciling import beat as beat_with_inventory
from tests.allocations.seeding import SLOTS, connect, seed, try_create
from tests.discovery.topologies import (
    DAY_SECONDS,
    beat,
    discover,
    discovery_task,
    gpu,
    issue,
    port,
    result_of,
    topology,
)
from tests.nodes.answers import body_of
from worker.sweepers.topologies import sweep_topologies

WITHOUT_GPU_6 = topology(gpus=[gpu(i) for i in range(SLOTS) if i != 6])
EVENTS = "select event_type from outbox where event_type like 'node.topology%%' order by id"


def topology_row(url: str) -> dict[str, object]:
    return row_of(url, "select * from node_topologies")


def test_the_first_topology_that_equals_the_profile_is_approved(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        assert await discover(context, database_url, node, topology()) is Taken.APPROVED

    run_with(database_url, way)
    row = topology_row(database_url)
    assert (row["approved_digest"], row["approved_by"]) == (topology().digest(), "worker:discovery")
    assert row["found"] == result_of(topology())
    assert rows_of(database_url, EVENTS) == [("node.topology_approved",)]
    assert rows_of(database_url, "select count(*) from audit where action = 'node.approve'") == [(1,)]
    assert slots_out_of_service(database_url) == []


def test_another_topology_waits_for_an_operator_and_takes_nothing(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> dict[str, int]:
        assert await discover(context, database_url, node, WITHOUT_GPU_6) is Taken.FOUND
        return await count_topologies(context)

    assert run_with(database_url, way) == {"unapproved": 1, "drifted": 0, "failed": 0}
    assert topology_row(database_url)["approved"] is None
    assert slots_out_of_service(database_url) == []
    assert rows_of(database_url, EVENTS) == []


def test_drift_takes_a_slot_and_a_later_equal_discovery_gives_it_back(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    async def drift(context: Context) -> None:
        await discover(context, database_url, node, topology())
        assert await discover(context, database_url, node, WITHOUT_GPU_6) is Taken.DRIFTED
        assert await discover(context, database_url, node, WITHOUT_GPU_6) is Taken.FOUND

    run_with(database_url, drift)
    assert slots_out_of_service(database_url) == [6]
    assert kept(database_url) == []
    with connect(database_url) as connection:
        assert try_create(connection, seeded, gpus=8) is None
    payload = row_of(database_url, "select payload from outbox where event_type = 'node.topology_drifted'")["payload"]
    assert payload["slots"] == [6]
    assert payload["differences"][0]["cause"] == "gpu_missing"

    async def restore(context: Context) -> None:
        assert await discover(context, database_url, node, topology()) is Taken.RESTORED

    run_with(database_url, restore)
    assert slots_out_of_service(database_url) == []
    assert topology_row(database_url)["drifted_since"] is None
    events = ["node.topology_approved", "node.topology_drifted", "node.topology_restored"]
    assert [row[0] for row in rows_of(database_url, EVENTS)] == events
    with connect(database_url) as connection:
        assert try_create(connection, seeded, gpus=8) is not None


def test_a_link_down_takes_the_node(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await discover(context, database_url, node, topology())
        down = topology(nics=[port(0), port(1, link_up=False)])
        assert await discover(context, database_url, node, down) is Taken.DRIFTED

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == list(range(SLOTS))
    assert kept(database_url) == []


def test_a_slot_with_an_orphan_and_a_drift_serves_when_both_have_ended(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    orphan = uuid.uuid4()

    async def way(context: Context) -> None:
        await discover(context, database_url, node, topology())
        await discover(context, database_url, node, WITHOUT_GPU_6)
        await beat_with_inventory(context, node, (orphan, [6]))
        assert len(await reconcile(context)) == 1
        assert await discover(context, database_url, node, topology()) is Taken.RESTORED

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == [6], "the orphan is still on it"
    assert kept(database_url) == []


def test_an_operator_approves_what_was_found_last(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    other = topology(gpus=[gpu(i, model="NVIDIA H300") for i in range(SLOTS)])

    async def way(context: Context) -> None:
        missing = await approve_topology(context, admin_operation(), ADMIN, node, digest="0" * 64)
        assert (missing.status, body_of(missing)["code"]) == (404, "not_found")
        await discover(context, database_url, node, topology())
        await discover(context, database_url, node, other)
        stale = await approve_topology(context, admin_operation(), ADMIN, node, digest=topology().digest())
        assert (stale.status, body_of(stale)["code"], body_of(stale)["digest"]) == (
            409,
            "topology_changed",
            other.digest(),
        )
        write = admin_operation()
        approved = await approve_topology(context, write, ADMIN, node, digest=other.digest())
        assert (approved.status, body_of(approved)["approved_digest"]) == (200, other.digest())
        assert (await approve_topology(context, write, ADMIN, node, digest=other.digest())).body == approved.body
        again = await approve_topology(context, admin_operation(), ADMIN, node, digest=other.digest())
        assert again.status == 200

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []
    assert topology_row(database_url)["approved_by"] == "admin:admin-key"
    events = ["node.topology_approved", "node.topology_drifted", "node.topology_approved"]
    assert [row[0] for row in rows_of(database_url, EVENTS)] == events


def test_a_topology_of_other_slots_cannot_be_approved(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await discover(context, database_url, node, WITHOUT_GPU_6)
        refused = await approve_topology(context, admin_operation(), ADMIN, node, digest=WITHOUT_GPU_6.digest())
        assert (refused.status, body_of(refused)["code"]) == (409, "topology_misfit")

    run_with(database_url, way)
    assert topology_row(database_url)["approved"] is None


def test_a_discovery_is_due_at_first_after_a_start_after_an_enrolment_and_daily(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    run = uuid.uuid4()

    async def way(context: Context) -> None:
        await discover(context, database_url, node, topology())
        assert await find_due_nodes(context, 10) == []
        await beat(context, node)
        assert await find_due_nodes(context, 10) == [], "an agent that names no run"
        await beat(context, node, run)
        assert await issue(context) == [node]
        assert await find_due_nodes(context, 10) == [], "one is open"
        await beat(context, node, uuid.uuid4())
        assert await find_due_nodes(context, 10) == [], "at most one is open"
        task = discovery_task(database_url)
        await report(context, task, completed(task, result_of(topology())))
        await take_discovery(context, node)
        assert await issue(context) == [node], "the agent was started again in the meantime"
        task = discovery_task(database_url)
        await report(context, task, completed(task, result_of(topology())))
        await take_discovery(context, node)
        for due in ("update nodes set epoch = epoch + 1", "update node_topologies set next_at = clock_timestamp()"):
            assert await find_due_nodes(context, 10) == []
            with connect(database_url) as connection:
                connection.execute(due)
            assert await find_due_nodes(context, 10) == [node]
            await issue(context)
            task = discovery_task(database_url)
            await report(context, task, completed(task, result_of(topology())))
            await take_discovery(context, node)

    run_with(database_url, way)
    assert rows_of(database_url, "select count(*) from node_tasks") == [(1,)], "earlier tasks are deleted"


def test_a_node_that_is_offline_or_retired_is_not_discovered(database_url: str) -> None:
    seed(database_url)

    async def due(context: Context) -> int:
        return len(await find_due_nodes(context, 10))

    assert run_with(database_url, due) == 1
    for change in ("online = false", "online = true, state = 'retired'"):
        with connect(database_url) as connection:
            connection.execute(f"update nodes set {change}")
        assert run_with(database_url, due) == 0


def test_a_failed_discovery_keeps_what_was_found_and_is_tried_again_soon(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await discover(context, database_url, node, topology())
        assert await discover(context, database_url, node, FailureCode.DRIVER_ERROR) is Taken.FAILED
        assert (await count_topologies(context))["failed"] == 1

    run_with(database_url, way)
    row = row_of(
        database_url,
        "select failure, approved_digest, found_digest, next_at < clock_timestamp() + interval '1 hour' as soon "
        "from node_topologies",
    )
    assert row == {
        "failure": "driver_error: it broke", "approved_digest": topology().digest(),
        "found_digest": topology().digest(), "soon": True,
    }  # fmt: skip
    assert slots_out_of_service(database_url) == []


def test_a_result_that_is_no_topology_is_a_failed_discovery(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await issue(context)
        task = discovery_task(database_url)
        assert (await report(context, task, completed(task, {"driver": "sandbox", "kernel": "6"}))).applied
        assert await take_discovery(context, node) is Taken.FAILED
        assert await take_discovery(context, node) is None, "it is taken in once"

    run_with(database_url, way)
    assert str(topology_row(database_url)["failure"]).startswith("the result is no topology: processors")


def test_a_discovery_without_an_answer_ends(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await issue(context)
        assert await take_discovery(context, node) is None
        with connect(database_url) as connection:
            connection.execute("update node_tasks set state = 'expired', finished_at = clock_timestamp()")
        assert await take_discovery(context, node) is Taken.FAILED

    run_with(database_url, way)
    row = topology_row(database_url)
    assert (row["waits_for"], row["failure"]) == (None, "the node did not report in time")


def test_a_late_result_of_another_node_or_epoch_changes_nothing(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=2)
    node, other = (n.id for n in seeded.nodes)

    async def way(context: Context) -> None:
        await beat(context, node, uuid.uuid4())
        assert await issue_discovery(context, node, DAY_SECONDS) is not None
        task = discovery_task(database_url)
        with connect(database_url) as connection:
            connection.execute("update nodes set epoch = epoch + 1 where id = %s", (node,))
        stale = {**task, "node_epoch": task["node_epoch"] + 1}
        assert not (await report(context, stale, completed(task, result_of(topology())))).applied
        assert await find_ended_discoveries(context, 10) == []
        assert await take_discovery(context, other) is None

    run_with(database_url, way)
    assert topology_row(database_url)["found"] is None


def test_sweepers_that_race_issue_one_discovery_and_take_it_in_once(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[Taken | None]:
        issued = await asyncio.gather(*(issue_discovery(context, node, DAY_SECONDS) for _ in range(4)))
        assert len([task for task in issued if task is not None]) == 1
        task = discovery_task(database_url)
        await report(context, task, completed(task, result_of(topology())))
        return list(await asyncio.gather(*(take_discovery(context, node) for _ in range(4))))

    taken = run_with(database_url, way, pool_size=8)
    assert sorted(map(str, taken)) == ["None", "None", "None", "approved"]
    assert rows_of(database_url, EVENTS) == [("node.topology_approved",)]


def test_one_round_of_the_sweeper_takes_in_and_issues(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await sweep_topologies(context, DAY_SECONDS, 10)
        task = discovery_task(database_url)
        await report(context, task, completed(task, result_of(topology())))
        await sweep_topologies(context, DAY_SECONDS, 10)

    run_with(database_url, way)
    assert topology_row(database_url)["approved_digest"] == topology().digest()
    assert rows_of(database_url, "select node_id from node_topologies where waits_for is null") == [(node,)]
