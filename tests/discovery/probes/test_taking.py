"""Probes are issued when due, one at a time, and taken in once; a fault takes its slots into quarantine, once."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from node_agent.protocol import FailureCode
from node_agent.wire.health import GpuHealth, HealthReport
from orchestrator.nodes.commands.probes import ProbePolicy, Taken, issue_probe, take_probe
from orchestrator.nodes.commands.quarantines import quarantine_slot, return_slot
from orchestrator.nodes.probes.queries import (
    count_health,
    find_ended_probes,
    find_health,
    list_health_reports,
)
from orchestrator.nodes.probes.thresholds import Thresholds
from orchestrator.operations.execution import Context
from tests.allocations.driving import ADMIN, completed, provision, report, row_of, rows_of, run_with
from tests.allocations.reconciling import admin_operation, kept, slots_out_of_service
from tests.allocations.seeding import SLOTS, connect, create_allocation, seed, try_create
from tests.discovery.probes.reports import (
    HOUR_SECONDS,
    POLICY,
    answer,
    disk,
    find_gpus,
    gpu,
    health,
    issue,
    plugin,
    probe,
    probe_task,
    result_of,
    xid,
)
from tests.discovery.trees import GPU_ADDRESSES
from worker.sweepers.probes import sweep_probes

EVENTS = "select event_type, payload from outbox where event_type like 'node.slot%%' order by id"
QUARANTINES = (
    "select slot_index, source, quarantined_by, returned_at is null as is_open"
    " from slot_quarantines order by id, slot_index"
)


def health_row(url: str) -> dict[str, Any]:
    return row_of(url, "select * from node_health")


def quarantined(url: str) -> list[int]:
    return [row[0] for row in rows_of(url, QUARANTINES) if row[3]]


async def return_(context: Context, node: uuid.UUID, slot: int) -> int:
    return (
        await return_slot(context, admin_operation(), ADMIN, node, slot, note="GPU reset", without_burn_in=True)
    ).status


def test_a_healthy_node_keeps_its_slots(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> dict[str, int]:
        await find_gpus(context, database_url, node)
        assert (await count_health(context))["unprobed"] == 1
        assert await probe(context, database_url, node, health()) is Taken.HEALTHY
        return await count_health(context)

    assert run_with(database_url, way) == {"unprobed": 0, "faulty": 0, "failed": 0}
    row = health_row(database_url)
    assert (row["report"], row["faults"], row["waits_for"]) == (result_of(health()), [], None)
    assert slots_out_of_service(database_url) == []
    assert rows_of(database_url, EVENTS) == []


def test_a_fault_of_a_gpu_takes_its_slot_and_the_same_fault_takes_it_once(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> dict[str, int]:
        await find_gpus(context, database_url, node)
        assert await probe(context, database_url, node, health(xid(6, count=3))) is Taken.QUARANTINED
        for _ in range(2):
            assert await probe(context, database_url, node, health(xid(6, count=4))) is Taken.FAULTY
        return await count_health(context)

    assert run_with(database_url, way)["faulty"] == 1
    assert slots_out_of_service(database_url) == [6]
    assert rows_of(database_url, QUARANTINES) == [(6, "probe", "worker:probe", True)]
    reason = f"gpu_xid of {GPU_ADDRESSES[6]} XID 79: 3 (threshold 0)"
    payload = {"node_id": str(node), "slot": 6, "reason": reason, "source": "probe"}
    assert rows_of(database_url, EVENTS) == [("node.slot_quarantined", payload)]
    evidence = json.loads(row_of(database_url, "select evidence from slot_quarantines")["evidence"])
    assert (evidence["cause"], evidence["count"], evidence["slots"]) == ("gpu_xid", 3, [6])
    assert rows_of(database_url, "select count(*) from audit where action = 'node.slot_quarantine'") == [(1,)]
    with connect(database_url) as connection:
        assert try_create(connection, seeded, gpus=8) is None
        assert try_create(connection, seeded, gpus=4) is not None
    assert kept(database_url) == []


def test_a_fault_of_the_node_takes_every_slot(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        assert await probe(context, database_url, node, health(disks=[disk(passed=False)])) is Taken.QUARANTINED

    run_with(database_url, way)
    assert quarantined(database_url) == slots_out_of_service(database_url) == list(range(SLOTS))
    assert len(rows_of(database_url, EVENTS)) == SLOTS
    assert kept(database_url) == []


def test_an_allocation_on_it_stays(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    mine = create_allocation(database_url, seeded, gpus=8)

    async def way(context: Context) -> None:
        await provision(context, database_url, mine)
        await find_gpus(context, database_url, node)
        await probe(context, database_url, node, health(gpu(0, remap_failed=True)))

    run_with(database_url, way)
    assert row_of(database_url, "select state from allocations")["state"] == "active"
    assert quarantined(database_url) == [0]
    assert kept(database_url) == []


def test_a_slot_that_an_operator_took_out_gets_no_second_quarantine(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        await quarantine_slot(context, admin_operation(), ADMIN, node, 6, reason="noise", evidence=None)
        assert await probe(context, database_url, node, health(xid(6))) is Taken.FAULTY

    run_with(database_url, way)
    assert rows_of(database_url, QUARANTINES) == [(6, "operator", "admin:admin-key", True)]


def test_a_returned_slot_stays_until_its_counter_moves_on(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        await probe(context, database_url, node, health(xid(6, count=3)))
        assert await return_(context, node, 6) == 200
        assert await issue(context) == [node], "a return makes a probe due"
        assert await answer(context, database_url, node, health(xid(6, count=3))) is Taken.HEALTHY
        assert slots_out_of_service(database_url) == []
        assert health_row(database_url)["accepted"] == {f"gpu_xid:{GPU_ADDRESSES[6]} XID 79": 3}
        assert await probe(context, database_url, node, health(xid(6, count=4))) is Taken.QUARANTINED
        assert await return_(context, node, 6) == 200
        assert await probe(context, database_url, node, health()) is Taken.HEALTHY, "the machine was started again"
        assert health_row(database_url)["accepted"] == {}
        assert await probe(context, database_url, node, health(xid(6, count=1))) is Taken.QUARANTINED

    run_with(database_url, way)
    events = [row[0].removeprefix("node.slot_") for row in rows_of(database_url, EVENTS)]
    assert events == ["quarantined", "returned", "quarantined", "returned", "quarantined"]


def test_a_returned_slot_whose_fault_is_a_state_leaves_again(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    pending = health(gpu(1, remap_pending=True))

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        await probe(context, database_url, node, pending)
        await return_(context, node, 1)
        assert await probe(context, database_url, node, pending) is Taken.QUARANTINED

    run_with(database_url, way)
    assert [row[3] for row in rows_of(database_url, QUARANTINES)] == [False, True]


def test_a_report_ordered_before_the_return_does_not_count(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    pending = health(gpu(1, remap_pending=True))

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        await probe(context, database_url, node, pending)
        with connect(database_url) as connection:
            connection.execute("update node_health set next_at = clock_timestamp()")
        await issue(context)
        await return_(context, node, 1)
        assert await answer(context, database_url, node, pending) is Taken.FAULTY
        assert slots_out_of_service(database_url) == []
        assert await issue(context) == [node], "the next one decides"
        assert await answer(context, database_url, node, pending) is Taken.QUARANTINED

    run_with(database_url, way)
    assert quarantined(database_url) == [1]


def test_thresholds_of_the_nodes_model_decide(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    model = row_of(database_url, "select gpu_model from nodes")["gpu_model"]
    policy = ProbePolicy(HOUR_SECONDS, 5, {model: Thresholds(gpu_uncorrected_max=5)})

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        assert await probe(context, database_url, node, health(gpu(0, ecc_uncorrected=5)), policy) is Taken.HEALTHY
        assert await probe(context, database_url, node, health(gpu(0, ecc_uncorrected=6)), policy) is Taken.QUARANTINED

    run_with(database_url, way)
    assert quarantined(database_url) == [0]


def test_a_gpu_of_no_known_slot_is_shown_and_takes_none(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    stranger = GpuHealth(address="0000:ff:00.0", remap_failed=True)

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        found = health(stranger, plugins=[plugin("fault", address="0000:fe:00.0")])
        assert await probe(context, database_url, node, found) is Taken.FAULTY

    run_with(database_url, way)
    assert [fault["slots"] for fault in health_row(database_url)["faults"]] == [[], []]
    assert rows_of(database_url, QUARANTINES) == []


def test_a_result_that_is_no_report_is_a_failed_probe(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    twice = {"driver": "l", "gpus": [{"address": GPU_ADDRESSES[0], "remap_failed": broken} for broken in (True, False)]}
    lies: list[dict[str, Any]] = [
        {}, twice, {"driver": "l", "memory": [{"name": "mc0", "uncorrected": 2**60}]},
        {"driver": "l", "plugins": [{"name": "p", "verdict": "fault", "evidence": "x" * 1001}]},
        {"driver": "l", "gpus": [{"address": "0000:0f:00.0"}] * 1000}, {"driver": "l", "disks": "none"},
    ]  # fmt: skip

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        await probe(context, database_url, node, health(xid(6)))
        for lie in lies:
            assert await probe(context, database_url, node, lie) is Taken.FAILED, lie
            assert await take_probe(context, node, POLICY) is None, "it is taken in once"
        assert (await count_health(context))["failed"] == 1

    run_with(database_url, way)
    row = health_row(database_url)
    assert row["failure"].startswith("the result is no health report: disks")
    assert row["report"] == result_of(health(xid(6))), "what was reported before stays"
    assert quarantined(database_url) == [6]


def test_a_failed_probe_is_tried_again_soon(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        assert await probe(context, database_url, node, FailureCode.DRIVER_ERROR) is Taken.FAILED

    run_with(database_url, way)
    soon = "select failure, next_at < clock_timestamp() + interval '20 minutes' as soon from node_health"
    assert row_of(database_url, soon) == {"failure": "driver_error: it broke", "soon": True}


def test_a_probe_without_an_answer_ends(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        await issue(context)
        assert await take_probe(context, node, POLICY) is None
        with connect(database_url) as connection:
            connection.execute(
                "update node_tasks set state = 'expired', finished_at = clock_timestamp() where type = 'diag.health_probe'"
            )
        assert await take_probe(context, node, POLICY) is Taken.FAILED

    run_with(database_url, way)
    row = health_row(database_url)
    assert (row["waits_for"], row["failure"]) == (None, "the node did not report in time")


def test_the_history_is_bounded_and_newest_first(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[int]:
        await find_gpus(context, database_url, node)
        for count in range(1, 9):
            await probe(context, database_url, node, health(xid(6, 31, count=count)))
        first = await list_health_reports(context.database, node, before=None, limit=3)
        rest = await list_health_reports(context.database, node, before=first[-1].id, limit=10)
        assert (await find_health(context.database, node))[0].report == first[0].report
        return [stored.report["gpus"][6]["xids"][0]["count"] for stored in (*first, *rest)]

    assert run_with(database_url, way) == [8, 7, 6, 5, 4]


def test_a_late_result_of_another_epoch_changes_nothing(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        await issue(context)
        task = probe_task(database_url)
        with connect(database_url) as connection:
            connection.execute("update nodes set epoch = epoch + 1 where id = %s", (node,))
        stale = {**task, "node_epoch": task["node_epoch"] + 1}
        assert not (await report(context, stale, completed(task, result_of(health(xid(6)))))).applied
        assert await find_ended_probes(context, 10) == []

    run_with(database_url, way)
    assert rows_of(database_url, QUARANTINES) == []


def test_sweepers_that_race_issue_one_probe_and_take_it_in_once(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[Taken | None]:
        await find_gpus(context, database_url, node)
        issued = await asyncio.gather(*(issue_probe(context, node, HOUR_SECONDS) for _ in range(4)))
        assert len([task for task in issued if task is not None]) == 1
        task = probe_task(database_url)
        await report(context, task, completed(task, result_of(health(xid(6)))))
        return list(await asyncio.gather(*(take_probe(context, node, POLICY) for _ in range(4))))

    taken = run_with(database_url, way, pool_size=8)
    assert sorted(map(str, taken)) == ["None", "None", "None", "quarantined"]
    assert len(rows_of(database_url, EVENTS)) == 1


def test_a_fault_and_creates_at_once_never_share_the_slot(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    def create() -> uuid.UUID | None:
        with connect(database_url) as connection:
            return try_create(connection, seeded)

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        await issue(context)
        task = probe_task(database_url)
        await report(context, task, completed(task, result_of(health(disks=[disk(passed=False)]))))
        await asyncio.gather(take_probe(context, node, POLICY), *(asyncio.to_thread(create) for _ in range(4)))

    run_with(database_url, way, pool_size=8)
    late = (
        "select c.id from claims c join slot_quarantines q on c.units @> q.unit where c.created_at > q.quarantined_at"
    )
    assert rows_of(database_url, late) == []
    assert kept(database_url) == []


def test_one_round_of_the_sweeper_takes_in_and_issues_for_a_node_without_gpus(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        await sweep_probes(context, POLICY, 10)
        task = probe_task(database_url)
        await report(context, task, completed(task, result_of(HealthReport(driver="sandbox"))))
        await sweep_probes(context, POLICY, 10)

    run_with(database_url, way)
    assert health_row(database_url)["report"] == {"driver": "sandbox", "gaps": []}
    assert rows_of(database_url, "select node_id from node_health where waits_for is null") == [(node,)]
