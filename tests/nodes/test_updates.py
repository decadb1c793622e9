"""The address and the NUMA halves of a node are changed while it is in use; placement follows the halves."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from orchestrator.nodes.commands.nodes import retire_node
from orchestrator.nodes.commands.topologies import approve_topology
from orchestrator.nodes.commands.updates import update_node
from orchestrator.nodes.store.updates import NewAddress, NodeChanges
from orchestrator.nodes.topology.judging import Taken
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Invalid
from tests.allocations.driving import ADMIN, row_of, rows_of, run_with
from tests.allocations.reconciling import admin_operation, kept
from tests.allocations.seeding import SLOTS, connect, create_allocation, seed, try_create
from tests.discovery.topologies import discover, gpu, topology

FIT = "select half_slots, fit_class, address, row_version from nodes"
HALVES = "select array_agg(numa_half order by slot_index) as halves from slots"
EVENTS = "select payload from outbox where event_type = 'node.updated' order by id"
PLACED = """
select array_agg(distinct s.numa_half) as halves from allocations a join claims c on c.id = a.claim_id
join slots s on c.units @> s.unit where a.id = %s
"""


async def change(context: Context, node: uuid.UUID | str, **changes: Any) -> Answer:
    """The operator's request."""
    return await update_node(context, admin_operation(), ADMIN, node, NodeChanges(**changes))


def code_of(answer: Answer) -> tuple[int, Any]:
    return answer.status, json.loads(answer.body).get("code")


def fit(low: int, high: int) -> int:
    """The class of a node with so many free slots in each half."""
    return low * 64 + high


def test_slots_lie_in_the_new_halves_and_placement_follows(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    answer = run_with(database_url, lambda context: change(context, node, half_slots=6))
    document = json.loads(answer.body)
    assert (answer.status, document["half_slots"]) == (200, 6)
    assert [slot["numa_half"] for slot in document["slots"]] == [0] * 6 + [1] * 2
    assert row_of(database_url, HALVES)["halves"] == [0] * 6 + [1] * 2
    assert row_of(database_url, FIT)["fit_class"] == fit(6, 2)
    assert kept(database_url) == []


def test_six_gpus_fit_into_a_half_that_was_made_larger(database_url: str) -> None:
    seeded = seed(database_url)
    run_with(database_url, lambda context: change(context, seeded.nodes[0].id, half_slots=6))
    mine = create_allocation(database_url, seeded, gpus=6)
    assert rows_of(database_url, PLACED, mine) == [([0],)]


def test_what_is_placed_stays_and_only_the_free_slots_count(database_url: str) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded, gpus=4)
    before = rows_of(database_url, "select units from claims")
    run_with(database_url, lambda context: change(context, seeded.nodes[0].id, half_slots=6))
    assert rows_of(database_url, "select units from claims") == before
    assert rows_of(database_url, "select claim_id is not null from allocations where id = %s", mine) == [(True,)]
    assert row_of(database_url, FIT)["fit_class"] == fit(2, 2)
    assert kept(database_url) == []


def test_an_address_is_set_and_removed_and_equal_values_change_nothing(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[Any]:
        seen = []
        for address in ("bmc-7", "bmc-7", None, None):
            answer = await change(context, node, address=NewAddress(address), half_slots=SLOTS // 2)
            seen.append((answer.status, json.loads(answer.body)["address"]))
        return seen

    assert run_with(database_url, way) == [(200, "bmc-7"), (200, "bmc-7"), (200, None), (200, None)]
    events = [row[0] for row in rows_of(database_url, EVENTS)]
    assert [(event["changed"], event["address"]) for event in events] == [(["address"], "bmc-7"), (["address"], None)]
    assert rows_of(database_url, "select count(*) from audit where action = 'node.update'") == [(4,)]


def test_a_node_is_named_by_its_name_too(database_url: str) -> None:
    seed(database_url)
    name = row_of(database_url, "select name from nodes")["name"]
    answer = run_with(database_url, lambda context: change(context, str(name), half_slots=5))
    assert (answer.status, row_of(database_url, FIT)["half_slots"]) == (200, 5)


def test_equal_changes_at_once_are_one_change(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def race(context: Context) -> set[int]:
        made = await asyncio.gather(*(change(context, node, address=NewAddress("bmc-7")) for _ in range(8)))
        return {answer.status for answer in made}

    assert run_with(database_url, race) == {200}
    assert rows_of(database_url, "select count(*) from outbox where event_type = 'node.updated'") == [(1,)]


def test_a_half_is_at_most_the_node(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        assert code_of(await change(context, node, half_slots=SLOTS)) == (200, None)
        with pytest.raises(Invalid, match="must not be larger"):
            await change(context, node, half_slots=SLOTS + 1)

    run_with(database_url, way)
    assert row_of(database_url, FIT)["half_slots"] == SLOTS
    assert row_of(database_url, HALVES)["halves"] == [0] * SLOTS


def test_a_retired_or_unknown_node_is_not_changed(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[Answer]:
        await retire_node(context, admin_operation(), ADMIN, node, reason="gone")
        return [await change(context, one, address=NewAddress("a")) for one in (node, uuid.uuid4(), "never-a-node")]

    refused = [code_of(answer) for answer in run_with(database_url, way)]
    assert refused == [(409, "invalid_state"), (404, "not_found"), (404, "not_found")]
    assert rows_of(database_url, EVENTS) == []


def test_an_approved_topology_moves_the_halves_and_no_one_contradicts_it(database_url: str) -> None:
    """Six GPUs at the first socket, where eight in two equal halves were declared."""
    node = seed(database_url).nodes[0].id
    found = topology(gpus=[gpu(index, numa_node=0 if index < 6 else 1) for index in range(SLOTS)])

    async def way(context: Context) -> list[Answer]:
        assert await discover(context, database_url, node, found) is Taken.FOUND
        approved = await approve_topology(context, admin_operation(), ADMIN, node, digest=found.digest())
        assert row_of(database_url, HALVES)["halves"] == [0] * 6 + [1] * 2
        again = await approve_topology(context, admin_operation(), ADMIN, node, digest=found.digest())
        return [approved, again, await change(context, node, half_slots=4), await change(context, node, half_slots=6)]

    answers = run_with(database_url, way)
    assert [code_of(answer)[0] for answer in answers] == [200, 200, 409, 200]
    assert code_of(answers[2]) == (409, "topology_misfit")
    assert row_of(database_url, HALVES)["halves"] == [0] * 6 + [1] * 2
    assert row_of(database_url, FIT)["fit_class"] == fit(6, 2)
    assert [row[0]["changed"] for row in rows_of(database_url, EVENTS)] == [["half_slots"]]
    assert kept(database_url) == []


def test_creates_meanwhile_never_leave_a_wrong_fit(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    def create() -> uuid.UUID | None:
        with connect(database_url) as database:
            return try_create(database, seeded)

    async def race(context: Context) -> list[uuid.UUID | None]:
        creates = [asyncio.to_thread(create) for _ in range(SLOTS)]
        changes = [change(context, node, half_slots=half) for half in (1, 7, 2, 6, 3, 5)]
        made, changed = await asyncio.gather(asyncio.gather(*creates), asyncio.gather(*changes))
        assert {answer.status for answer in changed} == {200}
        return [one for one in made if one is not None]

    made = run_with(database_url, race)
    assert made, "some were placed beside the changes"
    assert kept(database_url) == []
    # What the columns say is what a new calculation from slots and claims gives.
    before = row_of(database_url, "select fit_class, free_mask from nodes")
    with connect(database_url) as database:
        database.execute("select refresh_node_fit(%s)", (node,))
    assert row_of(database_url, "select fit_class, free_mask from nodes") == before
