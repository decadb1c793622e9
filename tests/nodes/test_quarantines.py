"""A slot in quarantine takes nothing new, keeps what is on it, and returns only by an operator's word."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from orchestrator.allocations.commands.task_results import accept_task_result
from orchestrator.nodes.commands.orphan_progress import advance_orphan
from orchestrator.nodes.commands.orphans import destroy_orphan
from orchestrator.nodes.commands.quarantines import quarantine_slot, return_slot
from orchestrator.nodes.orphan_states import OrphanState
from orchestrator.nodes.queries import find_node, list_quarantines_of_node
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import (
    ADMIN,
    WIPED,
    claim_of,
    clean_up,
    completed,
    provision,
    release,
    row_of,
    rows_of,
    run_with,
)
from tests.allocations.reconciling import admin_operation, beat, kept, orphan_task, reconcile
from tests.allocations.seeding import Seeded, connect, create_allocation, create_many, seed, try_create


async def _out(context: Context, node: uuid.UUID, slot: int, reason: str = "XID 79") -> Answer:
    return await quarantine_slot(context, admin_operation(), ADMIN, node, slot, reason=reason, evidence="dmesg")


async def _in(context: Context, node: uuid.UUID, slot: int) -> Answer:
    return await return_slot(context, admin_operation(), ADMIN, node, slot, note="GPU replaced")


async def _slot(context: Context, node: uuid.UUID, index: int) -> tuple[Any, Any]:
    document = await find_node(context.database, node)
    return document["slots"][index]["state"], document["slots"][index]["reason"]


def _units(url: str, found: list[uuid.UUID]) -> set[int]:
    rows = [rows_of(url, "select lower(units) from claims where id = %s", claim_of(url, one)["id"]) for one in found]
    return {row[0][0] for row in rows}


def _code(answer: Answer) -> Any:
    return json.loads(answer.body)["code"]


def test_nothing_new_is_placed_on_it_until_it_is_returned(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    answer = run_with(database_url, lambda context: _out(context, node, 2))
    assert answer.status == 200
    assert json.loads(answer.body)["evidence"] == "dmesg"
    with connect(database_url) as database:
        assert try_create(database, seeded, gpus=8) is None
    placed = create_many(database_url, seeded, 7)
    base = row_of(database_url, "select unit_base from nodes")["unit_base"]
    assert _units(database_url, placed) == {base + slot for slot in range(8) if slot != 2}
    with connect(database_url) as database:
        assert try_create(database, seeded) is None
    assert run_with(database_url, lambda context: _slot(context, node, 2)) == ("out_of_service", "quarantined: XID 79")
    assert run_with(database_url, lambda context: _in(context, node, 2)).status == 200
    assert run_with(database_url, lambda context: _slot(context, node, 2)) == ("free", None)
    assert _units(database_url, [create_allocation(database_url, seeded)]) == {base + 2}
    assert kept(database_url) == []


def test_an_allocation_on_it_stays_and_its_release_frees_nothing(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    mine = create_allocation(database_url, seeded, gpus=8)

    async def way(context: Context) -> tuple[Any, Any]:
        await provision(context, database_url, mine)
        assert (await _out(context, node, 0)).status == 200
        held = await _slot(context, node, 0)
        await release(context, seeded, mine)
        await clean_up(context, database_url, mine)
        return held, await _slot(context, node, 0)

    held, after = run_with(database_url, way)
    assert held == ("allocated", None)
    assert after == ("out_of_service", "quarantined: XID 79")
    with connect(database_url) as database:
        assert try_create(database, seeded, gpus=8) is None
    assert kept(database_url) == []


def test_a_repetition_changes_nothing_and_a_return_happens_once(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[Answer]:
        first, again = await _out(context, node, 1), await _out(context, node, 1, reason="another")
        returned, twice = await _in(context, node, 1), await _in(context, node, 1)
        await _out(context, node, 1, reason="again")
        return [first, again, returned, twice]

    first, again, returned, twice = run_with(database_url, way)
    assert json.loads(first.body)["id"] == json.loads(again.body)["id"] == json.loads(returned.body)["id"]
    assert json.loads(again.body)["reason"] == "XID 79"
    assert (twice.status, _code(twice)) == (409, "invalid_state")
    events = rows_of(
        database_url, "select event_type from outbox where event_type like 'node.slot%%' order by occurred_at"
    )
    assert [row[0] for row in events] == ["node.slot_quarantined", "node.slot_returned", "node.slot_quarantined"]
    actions = rows_of(database_url, "select action from audit where action like 'node.slot%%'")
    assert sorted(row[0] for row in actions) == ["node.slot_quarantine"] * 3 + ["node.slot_return"]

    async def history(context: Context) -> tuple[list[str], list[str]]:
        every, still = [
            await list_quarantines_of_node(context.database, node, every=every, after=uuid.UUID(int=0), limit=10)
            for every in (True, False)
        ]
        return [one.reason for one in every], [one.reason for one in still]

    assert run_with(database_url, history) == (["XID 79", "again"], ["again"])


def test_a_slot_with_an_orphan_serves_again_only_when_both_are_gone(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    stranger = uuid.uuid4()

    async def way(context: Context) -> list[tuple[Any, Any]]:
        await beat(context, node, (stranger, [3]))
        (orphan,) = await reconcile(context)
        seen = [await _slot(context, node, 3)]
        await _out(context, node, 3)
        seen.append(await _slot(context, node, 3))
        await _in(context, node, 3)
        seen.append(await _slot(context, node, 3))
        await _out(context, node, 3)
        await destroy_orphan(context, admin_operation(), ADMIN, node, orphan, reason="stray")
        assert await advance_orphan(context, orphan) is OrphanState.DESTROYING
        task = orphan_task(database_url)
        assert (await accept_task_result(context, node, 1, task["id"], completed(task, WIPED))).applied
        assert await advance_orphan(context, orphan) is OrphanState.DESTROYED
        seen.append(await _slot(context, node, 3))
        await _in(context, node, 3)
        return [*seen, await _slot(context, node, 3)]

    seen = run_with(database_url, way)
    assert [state for state, _ in seen] == ["out_of_service"] * 4 + ["free"]
    orphaned, quarantined = "an orphan is on it; see berth node orphans", "quarantined: XID 79"
    assert [reason for _, reason in seen] == [orphaned, quarantined, orphaned, quarantined, None]
    assert kept(database_url) == []


def test_a_slot_that_drifted_stays_out_after_its_return(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    with connect(database_url) as database:
        database.execute(
            "insert into node_topologies (node_id, task_id, epoch, next_at, drifted_slots, drifted_since)"
            " values (%s, uuidv7(), 1, now(), '{4}', now())",
            (node,),
        )

    async def way(context: Context) -> list[tuple[Any, Any]]:
        await _out(context, node, 4)
        await _out(context, node, 5)
        quarantined = await _slot(context, node, 4)
        await _in(context, node, 4)
        await _in(context, node, 5)
        return [quarantined, await _slot(context, node, 4), await _slot(context, node, 5)]

    quarantined, drifted, other = run_with(database_url, way)
    assert quarantined == ("out_of_service", "quarantined: XID 79")
    assert drifted == ("out_of_service", "its hardware differs from the approved topology; see berth node topology")
    assert other == ("free", None)


@pytest.mark.parametrize("slot", [8, 63])
def test_a_slot_that_the_node_lacks_is_not_found(database_url: str, slot: int) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[Answer]:
        return [await _out(context, node, slot), await _in(context, node, slot), await _out(context, uuid.uuid4(), 0)]

    answers = run_with(database_url, way)
    assert [(answer.status, _code(answer)) for answer in answers] == [(404, "not_found")] * 3


def test_the_slots_of_a_retired_node_are_refused(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    with connect(database_url) as database:
        database.execute("update nodes set state = 'retired', online = false")
    answer = run_with(database_url, lambda context: _out(context, node, 0))
    assert (answer.status, _code(answer)) == (409, "invalid_state")
    assert rows_of(database_url, "select count(*) from slot_quarantines") == [(0,)]


def test_a_quarantine_and_creates_at_once_never_share_a_slot(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=2)

    async def race(context: Context) -> list[Any]:
        outs = [_out(context, node.id, slot) for node in seeded.nodes[:2] for slot in range(0, 8, 2)]
        creates = [asyncio.to_thread(_create, database_url, seeded) for _ in range(16)]
        return await asyncio.gather(*outs, *creates)

    answers = run_with(database_url, race)
    assert [answer.status for answer in answers[:8]] == [200] * 8
    late = rows_of(
        database_url,
        "select c.id from claims c join slot_quarantines q on c.units @> q.unit where c.created_at > q.quarantined_at",
    )
    assert late == []
    assert kept(database_url) == []


def _create(url: str, seeded: Seeded) -> uuid.UUID | None:
    with connect(url) as database:
        return try_create(database, seeded)
