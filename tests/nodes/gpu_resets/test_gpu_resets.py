"""A reset is requested once, issued to a node that can do it, and concluded once; it ends by its deadline."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from node_agent.protocol import FailureCode
from orchestrator.nodes.commands.gpu_resets import Advanced, advance_gpu_reset
from orchestrator.nodes.gpu_resets.queries import find_open_gpu_resets, list_gpu_resets
from orchestrator.operations.execution import Context
from tests.allocations.driving import completed, report, row_of, rows_of, run_with
from tests.allocations.seeding import connect, seed
from tests.discovery.topologies import topology
from tests.discovery.trees import GPU_ADDRESSES
from tests.nodes.answers import body_of, refusal_of
from tests.nodes.gpu_resets.running import (
    KEPT,
    answer,
    ask,
    bring_back,
    issue,
    parameters_of,
    passed_through,
    ready,
    reset,
    reset_row,
    reset_task,
    results,
    take_out,
)
from worker.sweepers.burn_ins import sweep_gpu_resets

EVENTS = "select payload from outbox where event_type = 'node.gpu_reset_ended' order by id"
HISTORY = (
    "select serial, happened, slots, actor, detail from hardware_history where happened = 'gpu_reset' order by serial"
)
LAST_FAULT = "select last_fault_at from slot_quarantines where returned_at is null"


def test_a_reset_is_requested_issued_and_proven(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> tuple[dict[str, Any], dict[str, Any]]:
        await ready(context, database_url, node)
        await take_out(context, node, 3)
        asked = body_of(await ask(context, node))
        assert (asked["slots"], asked["gpus"], asked["outcome"]) == ([3], [GPU_ADDRESSES[3]], None)
        assert asked["waits"]["for"] == "worker"
        await issue(context, node)
        (open_one,) = await list_gpu_resets(context.database, node, before=None, limit=5)
        assert open_one.waits_for == "node"
        order = parameters_of(reset_task(database_url))
        assert await answer(context, database_url, node, results([3])) is Advanced.RESET
        return asked, order

    asked, order = run_with(database_url, way)
    assert order == {"slots": [3], "gpus": [GPU_ADDRESSES[3]], "serials": {}}
    row = reset_row(database_url)
    assert (str(row["id"]), row["outcome"], row["failure"], row["waits_for"]) == (asked["id"], "reset", None, None)
    assert rows_of(database_url, EVENTS) == [
        ({"node_id": str(node), "gpu_reset_id": asked["id"], "slots": [3], "outcome": "reset", "failure": None},)
    ]
    assert rows_of(database_url, "select detail -> 'slots' from audit where action = 'node.gpu_reset'") == [([3],)]
    assert rows_of(database_url, LAST_FAULT) == [(None,)], "the quarantine is as before"


def test_the_history_of_each_serial_number_has_it(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    evidence = "its serial number was 1653 and is 1659"

    async def way(context: Context) -> None:
        await ready(context, database_url, node, topology())
        await take_out(context, node, *range(8))
        assert await reset(context, database_url, node, results(range(8))) is Advanced.RESET
        failed = results(range(8), outcome="gpu_reset_unverified", evidence=evidence)
        assert await reset(context, database_url, node, failed) is Advanced.FAILED

    run_with(database_url, way)
    found = rows_of(database_url, HISTORY + ", id")
    assert found[:3] == [
        ("1650", "gpu_reset", [0], "worker:gpu_reset", "reset"), ("1650", "gpu_reset", [0], "worker:gpu_reset", "reset"),
        ("1651", "gpu_reset", [1], "worker:gpu_reset", "reset"),
    ]  # fmt: skip
    assert found[-1] == ("1657", "gpu_reset", [7], "worker:gpu_reset", f"gpu_reset_unverified: {evidence}")


@pytest.mark.parametrize(
    ("found", "failure", "is_fault"),
    [
        (results([3], outcome="gpu_in_use", evidence="1 processes have it open"),
         f"gpu_in_use: {GPU_ADDRESSES[3]}: 1 processes have it open", False),
        (results([3], outcome="gpu_reset_unsupported", evidence="e"), "gpu_reset_unsupported: ", False),
        (results([3], outcome="gpu_missing", evidence="e"), "gpu_missing: ", False),
        (results([3], outcome="gpu_reset_failed", evidence="e"), f"gpu_reset_failed: {GPU_ADDRESSES[3]}: e", True),
        (results([3], outcome="gpu_reset_unverified", evidence="e"), "gpu_reset_unverified: ", True),
        (results([4]), f"gpu_reset_unverified: the report has nothing of {GPU_ADDRESSES[3]}", True),
        (FailureCode.INTERRUPTED, "interrupted: it broke", True),
        (FailureCode.TASK_REFUSED, "task_refused: it broke", False),
        ({"driver": "x"}, "bad_report: the result is no report of a reset: gpus: Field required", True),
        ({"driver": "x", "gpus": [{"address": GPU_ADDRESSES[3], "outcome": "reset"}] * 2}, "bad_report: ", True),
    ],
)  # fmt: skip
def test_what_is_not_proven_says_why_and_is_a_fault_if_a_gpu_may_be_touched(
    database_url: str, found: Any, failure: str, is_fault: bool
) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await take_out(context, node, 3)
        assert await reset(context, database_url, node, found) is Advanced.FAILED
        returned = await bring_back(context, node, 3)
        assert (returned.status, is_fault) in ((409, True), (200, False))
        if is_fault:
            assert body_of(returned)["code"] == "burn_in_required"

    run_with(database_url, way)
    assert reset_row(database_url)["outcome"] == "failed"
    assert reset_row(database_url)["failure"].startswith(failure)


def test_a_repetition_is_answered_with_the_open_one(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await take_out(context, node, 3, 4)
        first = body_of(await ask(context, node))["id"]
        assert body_of(await ask(context, node))["id"] == first
        assert refusal_of(await ask(context, node, 4)) == (409, "invalid_state", "open")
        await issue(context, node)
        assert body_of(await ask(context, node))["id"] == first

    run_with(database_url, way)
    assert rows_of(database_url, "select count(*) from node_gpu_resets") == [(1,)]


def test_requests_and_sweepers_at_once_make_one_reset(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> tuple[set[str], list[str], list[str]]:
        await ready(context, database_url, node)
        await take_out(context, node, 3)
        asked = await asyncio.gather(*(ask(context, node) for _ in range(4)))
        issued = await asyncio.gather(*(advance_gpu_reset(context, node, KEPT) for _ in range(4)))
        task = reset_task(database_url)
        await report(context, task, completed(task, results([3]).model_dump(mode="json")))
        ended = await asyncio.gather(*(advance_gpu_reset(context, node, KEPT) for _ in range(4)))
        return {body_of(one)["id"] for one in asked}, sorted(map(str, issued)), sorted(map(str, ended))

    ids, issued, ended = run_with(database_url, way, pool_size=8)
    assert len(ids) == 1
    assert issued == ["None", "None", "None", "issued"]
    assert ended == ["None", "None", "None", "reset"]
    assert len(rows_of(database_url, EVENTS)) == 1


def test_what_cannot_be_reset_is_refused(database_url: str) -> None:
    nodes = [node.id for node in seed(database_url, slice_nodes=5).nodes]

    async def way(context: Context) -> list[Any]:
        with connect(database_url) as connection:
            connection.execute("update nodes set online = false")
        await ready(context, database_url, nodes[0])
        for node in nodes[:5]:
            await take_out(context, node, 3)
        with connect(database_url) as connection:
            connection.execute("update nodes set online = id <> %s", (nodes[1],))
            connection.execute(
                "update nodes set agent_features = '{burn_in}', agent_version = '0.1' where id = %s", (nodes[2],)
            )
            connection.execute("update nodes set state = 'retired', online = false where id = %s", (nodes[3],))
        unsupported = await ask(context, nodes[2])
        assert "version 0.1" in body_of(unsupported)["detail"]
        asked = [
            await ask(context, nodes[0], 63), await ask(context, uuid.uuid4()), await ask(context, nodes[1]), unsupported,
            await ask(context, nodes[3]), await ask(context, nodes[4]),
        ]  # fmt: skip
        return [refusal_of(one) for one in asked]

    missing = (404, "not_found", None)
    assert run_with(database_url, way) == [
        missing, missing, (409, "invalid_state", "offline"), (409, "gpu_reset_unsupported", None),
        (409, "invalid_state", "retired"), (409, "invalid_state", "topology_unknown"),
    ]  # fmt: skip
    assert rows_of(database_url, "select count(*) from node_gpu_resets") == [(0,)]


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        ("update nodes set state = 'retired', online = false", "node_retired: the node is retired"),
        ("update nodes set agent_features = '{}', agent_version = '0.1'",
         "gpu_reset_unsupported: the node's agent (version 0.1) has no GPU reset"),
        ("update node_gpu_resets set waits_until = clock_timestamp() - interval '1 s'",
         "node_offline: the node was not online in time"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_issued_any_more_ends(database_url: str, change: str, failure: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await take_out(context, node, 3)
        await ask(context, node)
        with connect(database_url) as connection:
            connection.execute(change)
        await sweep_gpu_resets(context, KEPT, 10)

    run_with(database_url, way)
    assert (reset_row(database_url)["outcome"], reset_row(database_url)["failure"]) == ("failed", failure)
    assert rows_of(database_url, "select count(*) from node_tasks where type = 'diag.gpu_reset'") == [(0,)]
    assert rows_of(database_url, LAST_FAULT) == [(None,)]


def test_a_request_waits_for_its_node(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await take_out(context, node, 3)
        await ask(context, node)
        with connect(database_url) as connection:
            connection.execute("update nodes set online = false")
        assert await find_open_gpu_resets(context, 10) == []
        assert await advance_gpu_reset(context, node, KEPT) is None

    run_with(database_url, way)
    assert reset_row(database_url)["waits_for"] == "worker"


def test_other_gpus_than_those_requested_are_not_reset(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await take_out(context, node, 3, 5)
        await ask(context, node)
        await ready(context, database_url, node, passed_through(3, 5))
        assert await advance_gpu_reset(context, node, KEPT) is Advanced.FAILED

    run_with(database_url, way)
    assert reset_row(database_url)["failure"].startswith("topology_changed: ")


def test_an_order_names_the_serial_numbers_and_another_gpu_at_an_address_is_not_reset(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, topology())
        await take_out(context, node, *range(8))
        assert await reset(context, database_url, node, results(range(8))) is Advanced.RESET
        assert parameters_of(reset_task(database_url))["serials"] == {
            address: f"165{slot}" for slot, address in enumerate(GPU_ADDRESSES[:8])
        }
        await ask(context, node)
        with connect(database_url) as connection:
            connection.execute("update node_topologies set found = jsonb_set(found, '{gpus,3,serial}', '\"97\"')")
        assert await advance_gpu_reset(context, node, KEPT) is Advanced.FAILED
        assert refusal_of(await ask(context, node)) == (409, "invalid_state", "topology_changed")

    run_with(database_url, way)
    assert reset_row(database_url)["failure"] == (
        f"topology_changed: the serial number at {GPU_ADDRESSES[3]} is 97, and 1653 was approved"
    )


@pytest.mark.parametrize("dispatched", [True, False])
def test_a_task_without_an_answer_ends_by_its_deadline_and_is_a_fault_if_it_was_dispatched(
    database_url: str, dispatched: bool
) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await take_out(context, node, 3)
        await ask(context, node)
        await issue(context, node)
        assert reset_row(database_url)["waits_until"] == reset_task(database_url)["expires_at"]
        assert await advance_gpu_reset(context, node, KEPT) is None
        with connect(database_url) as connection:
            connection.execute(
                "update node_tasks set state = 'expired', finished_at = clock_timestamp(),"
                " dispatched_at = case when %s then clock_timestamp() end where type = 'diag.gpu_reset'",
                (dispatched,),
            )
        await sweep_gpu_resets(context, KEPT, 10)

    run_with(database_url, way)
    row = reset_row(database_url)
    assert (row["outcome"], row["failure"]) == ("failed", "expired: the node did not report in time")
    assert (row_of(database_url, LAST_FAULT)["last_fault_at"] is not None) == dispatched


def test_the_history_of_a_node_is_bounded_and_newest_first_and_so_are_tasks(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[list[int]]:
        await ready(context, database_url, node)
        await take_out(context, node, *range(7))
        for slot in range(7):
            await reset(context, database_url, node, slot=slot)
        first = await list_gpu_resets(context.database, node, before=None, limit=2)
        rest = await list_gpu_resets(context.database, node, before=first[-1].id, limit=10)
        return [one.slots for one in (*first, *rest)]

    assert run_with(database_url, way) == [[6], [5], [4], [3], [2]]
    assert rows_of(database_url, "select count(*) from node_tasks where type = 'diag.gpu_reset'") == [(1,)]
