"""A burn-in is requested once, issued to a node that can do it, and concluded once; it ends by its deadline."""

from __future__ import annotations

import asyncio
import base64
import uuid
from typing import Any

import pytest

from node_agent.protocol import FailureCode, Heartbeat, TaskBody
from orchestrator.nodes.burn_ins.queries import find_open_burn_ins, list_burn_ins
from orchestrator.nodes.commands.burn_ins import Advanced, BurnInPolicy, advance_burn_in
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.nodes.commands.quarantines import quarantine_slot
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import ADMIN, clean_up, completed, provision, release, report, row_of, rows_of, run_with
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import SLOTS, connect, create_allocation, seed
from tests.discovery.probes.reports import find_gpus
from tests.discovery.trees import GPU_ADDRESSES
from tests.nodes.answers import body_of
from tests.nodes.burn_ins.running import (
    FAULTY,
    PERSON,
    answer,
    ask,
    burn,
    burn_in_task,
    burned_in,
    can_burn_in,
    issue,
    refusal_of,
    return_,
)
from worker.sweepers.burn_ins import sweep_burn_ins

EVENTS = "select payload from outbox where event_type = 'node.burn_in_ended' order by id"


def burn_in_row(url: str) -> dict[str, Any]:
    return row_of(url, "select * from node_burn_ins")


async def take_out(context: Context, node: uuid.UUID, *slots: int) -> None:
    for slot in slots:
        out = await quarantine_slot(context, admin_operation(), ADMIN, node, slot, reason="noise", evidence=None)
        assert out.status == 200


def parameters_of(task: dict[str, Any]) -> dict[str, Any]:
    """What the signed task says."""
    body = TaskBody.model_validate_json(base64.b64decode(task["envelope"]["payload"]))
    assert (body.type, body.allocation_id, body.expires_at) == ("diag.burn_in", None, task["expires_at"])
    return body.parameters


def test_a_burn_in_of_a_slot_is_requested_issued_and_passes(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> dict[str, Any]:
        await take_out(context, node, 3)
        asked = body_of(await ask(context, node, 3))
        assert (asked["slots"], asked["outcome"], asked["waits"]["for"], asked["shared"]) == ([3], None, "worker", None)
        await issue(context, node)
        (open_one,) = await list_burn_ins(context.database, node, before=None, limit=5)
        assert (open_one.waits_for, open_one.shared) == ("node", False)
        assert await answer(context, database_url, node, burned_in()) is Advanced.PASSED
        return asked

    asked = run_with(database_url, way)
    row = burn_in_row(database_url)
    assert (str(row["id"]), row["outcome"], row["failure"], row["waits_for"]) == (asked["id"], "passed", None, None)
    assert row["report"]["parts"][0]["name"] == "memory"
    assert rows_of(database_url, EVENTS) == [
        ({"node_id": str(node), "burn_in_id": asked["id"], "slots": [3], "outcome": "passed", "failure": None},)
    ]
    assert rows_of(database_url, "select detail -> 'slots' from audit where action = 'node.burn_in'") == [([3],)]


@pytest.mark.parametrize(
    ("found", "advanced", "failure"),
    [
        (FAULTY, Advanced.FAULTY, "memory: byte 7"),
        (FailureCode.INTERRUPTED, Advanced.FAILED, "interrupted: it broke"),
        (FailureCode.TASK_REFUSED, Advanced.FAILED, "task_refused: it broke"),
        ({"driver": "x"}, Advanced.FAILED, "the result is no burn-in report: shared: Field required"),
        ({"driver": "x", "shared": False, "parts": [{"name": "cpu", "verdict": "healthy"}] * 2}, Advanced.FAILED,
         "the result is no burn-in report: parts: Value error, names one subject twice"),
    ],
)  # fmt: skip
def test_what_does_not_pass_says_why(database_url: str, found: Any, advanced: Advanced, failure: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> None:
        await take_out(context, node, 3)
        assert await burn(context, database_url, node, found) is advanced

    run_with(database_url, way)
    row = burn_in_row(database_url)
    assert row["outcome"] == advanced.value
    assert row["failure"].startswith(failure)


def test_a_repetition_is_answered_with_the_open_one(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> list[Answer]:
        await take_out(context, node, 3, 4)
        first = await ask(context, node, 3)
        again, whole, other = await ask(context, node, 3), await ask(context, node), await ask(context, node, 4)
        await issue(context, node)
        return [first, again, whole, await ask(context, node, 3), other]

    *same, other = run_with(database_url, way)
    assert len({body_of(one)["id"] for one in same}) == 1
    assert refusal_of(other) == (409, "invalid_state")
    assert rows_of(database_url, "select count(*) from node_burn_ins") == [(1,)]


def test_requests_and_sweepers_at_once_make_one_burn_in(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> tuple[set[str], list[str], list[str]]:
        await take_out(context, node, 3)
        asked = await asyncio.gather(*(ask(context, node, 3) for _ in range(4)))
        issued = await asyncio.gather(*(advance_burn_in(context, node, PERSON) for _ in range(4)))
        task = burn_in_task(database_url)
        await report(context, task, completed(task, burned_in().model_dump(mode="json")))
        ended = await asyncio.gather(*(advance_burn_in(context, node, PERSON) for _ in range(4)))
        return {body_of(one)["id"] for one in asked}, sorted(map(str, issued)), sorted(map(str, ended))

    ids, issued, ended = run_with(database_url, way, pool_size=8)
    assert len(ids) == 1
    assert issued == ["None", "None", "None", "issued"]
    assert ended == ["None", "None", "None", "passed"]
    assert len(rows_of(database_url, EVENTS)) == 1


def test_the_whole_node_means_every_slot_in_quarantine_without_an_allocation(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    mine = create_allocation(database_url, seeded, gpus=2)

    async def way(context: Context) -> dict[str, Any]:
        await provision(context, database_url, mine)
        await find_gpus(context, database_url, node)
        can_burn_in(database_url)
        await take_out(context, node, 0, 6, 7)
        refused = await ask(context, node, 0)
        assert (refusal_of(refused), body_of(refused)["state"]) == ((409, "invalid_state"), "occupied")
        assert body_of(await ask(context, node))["slots"] == [6, 7]
        await issue(context, node)
        order = parameters_of(burn_in_task(database_url))
        assert await answer(context, database_url, node, burned_in()) is Advanced.PASSED
        await release(context, seeded, mine)
        await clean_up(context, database_url, mine)
        assert body_of(await ask(context, node))["slots"] == [0, 6, 7]
        await issue(context, node)
        alone = parameters_of(burn_in_task(database_url))
        assert (alone["slots"], alone["shared"]) == ([0, 6, 7], False)
        return order

    order = run_with(database_url, way)
    assert order == {"slots": [6, 7], "gpus": [GPU_ADDRESSES[6], GPU_ADDRESSES[7]], "shared": True}


def test_a_slot_with_an_orphan_is_not_tested(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> None:
        await take_out(context, node, 3)
        with connect(database_url) as connection:
            connection.execute(
                "insert into node_orphans (node_id, allocation_id, slots, waits_for, waits_since)"
                " values (%s, uuidv7(), '{3}', 'operator', clock_timestamp())",
                (node,),
            )
        refused = await ask(context, node, 3)
        assert (refusal_of(refused), body_of(refused)["state"]) == ((409, "invalid_state"), "occupied")

    run_with(database_url, way)


def test_without_a_topology_no_gpu_is_named(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> dict[str, Any]:
        await take_out(context, node, *range(SLOTS))
        await ask(context, node)
        await issue(context, node)
        return parameters_of(burn_in_task(database_url))

    assert run_with(database_url, way) == {"slots": list(range(SLOTS)), "gpus": [], "shared": False}


def test_what_cannot_be_tested_is_refused(database_url: str) -> None:
    nodes = [node.id for node in seed(database_url, slice_nodes=4).nodes]
    can_burn_in(database_url)
    with connect(database_url) as connection:
        connection.execute("update nodes set online = false where id = %s", (nodes[1],))
        connection.execute("update nodes set agent_features = '{}', agent_version = '0.1' where id = %s", (nodes[2],))

    async def way(context: Context) -> list[tuple[int, str]]:
        for node in nodes[:4]:
            await take_out(context, node, 3)
        with connect(database_url) as connection:
            connection.execute("update nodes set state = 'retired', online = false where id = %s", (nodes[3],))
        asked = [
            await ask(context, nodes[0], 2), await ask(context, nodes[0], 63), await ask(context, uuid.uuid4(), 3),
            await ask(context, nodes[1], 3), await ask(context, nodes[2], 3), await ask(context, nodes[3], 3),
        ]  # fmt: skip
        assert "version 0.1" in body_of(asked[4])["detail"]
        return [refusal_of(one) for one in asked]

    invalid, missing = (409, "invalid_state"), (404, "not_found")
    assert run_with(database_url, way) == [invalid, missing, missing, invalid, (409, "burn_in_unsupported"), invalid]
    assert rows_of(database_url, "select count(*) from node_burn_ins") == [(0,)]


def test_heartbeats_state_what_the_agent_can_do(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[Any]:
        seen = []
        for features in (["burn_in", "more"], []):
            beat = Heartbeat(agent_version="1", driver="sandbox", allocations=[], features=features)
            await record_heartbeat(context, node, beat, sandbox_allowed=True)
            seen.append(row_of(database_url, "select agent_features from nodes where id = %s", node)["agent_features"])
        return seen

    assert run_with(database_url, way) == [["burn_in", "more"], []]


def test_an_agent_of_the_version_before_ends_a_request_at_once(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> None:
        await take_out(context, node, 3)
        await ask(context, node, 3)
        with connect(database_url) as connection:
            connection.execute("update nodes set agent_features = '{}', agent_version = '0.1'")
        assert await advance_burn_in(context, node, PERSON) is Advanced.FAILED

    run_with(database_url, way)
    assert burn_in_row(database_url)["failure"] == "the node's agent (version 0.1) has no burn-in"
    assert rows_of(database_url, "select count(*) from node_tasks where type = 'diag.burn_in'") == [(0,)]


def test_a_request_waits_for_its_node_until_its_deadline(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> None:
        await take_out(context, node, 3)
        await ask(context, node, 3)
        with connect(database_url) as connection:
            connection.execute("update nodes set online = false")
        assert await find_open_burn_ins(context, 10) == []
        assert await advance_burn_in(context, node, PERSON) is None
        with connect(database_url) as connection:
            connection.execute("update node_burn_ins set waits_until = clock_timestamp() - interval '1 s'")
        assert await find_open_burn_ins(context, 10) == [node]
        assert await advance_burn_in(context, node, PERSON) is Advanced.FAILED

    run_with(database_url, way)
    assert burn_in_row(database_url)["failure"] == "the node was not online in time"


def test_a_task_without_an_answer_ends_by_its_deadline(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> None:
        await take_out(context, node, 3)
        await ask(context, node, 3)
        await issue(context, node)
        assert burn_in_row(database_url)["waits_until"] == burn_in_task(database_url)["expires_at"]
        assert await advance_burn_in(context, node, PERSON) is None
        with connect(database_url) as connection:
            connection.execute(
                "update node_tasks set state = 'expired', finished_at = clock_timestamp() where type = 'diag.burn_in'"
            )
        await sweep_burn_ins(context, PERSON, 10)

    run_with(database_url, way)
    row = burn_in_row(database_url)
    assert (row["outcome"], row["failure"], row["waits_until"]) == ("failed", "the node did not report in time", None)


def test_a_slot_that_returned_meanwhile_is_not_tested(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> list[Any]:
        await take_out(context, node, 3, 4)
        await ask(context, node)
        assert (await return_(context, node, 3)).status == 200
        await issue(context, node)
        tested = [parameters_of(burn_in_task(database_url))["slots"], burn_in_row(database_url)["slots"]]
        await answer(context, database_url, node, burned_in())
        await ask(context, node)
        assert (await return_(context, node, 4)).status == 200
        assert await advance_burn_in(context, node, PERSON) is Advanced.FAILED
        return tested

    assert run_with(database_url, way) == [[4], [4]]


def test_a_retired_node_ends_it(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> None:
        await take_out(context, node, 3)
        await ask(context, node)
        with connect(database_url) as connection:
            connection.execute("update nodes set state = 'retired', online = false")
        await sweep_burn_ins(context, PERSON, 10)

    run_with(database_url, way)
    assert burn_in_row(database_url)["failure"] == "the node is retired"


def test_the_history_is_bounded_and_newest_first_and_so_are_tasks(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    can_burn_in(database_url)

    async def way(context: Context) -> list[list[int]]:
        await take_out(context, node, *range(4))
        for slot in range(4):
            await burn(context, database_url, node, slot=slot, policy=BurnInPolicy(3_600.0, 3, "person"))
        first = await list_burn_ins(context.database, node, before=None, limit=2)
        rest = await list_burn_ins(context.database, node, before=first[-1].id, limit=10)
        return [one.slots for one in (*first, *rest)]

    assert run_with(database_url, way) == [[3], [2], [1]]
    assert rows_of(database_url, "select count(*) from node_tasks where type = 'diag.burn_in'") == [(1,)]
