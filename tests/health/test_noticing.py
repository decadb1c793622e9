"""What heartbeats and silence change: one event per change and allocation for its tenant, nothing of other nodes."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime

import pytest

from node_agent.wire.guests import GuestReport
from orchestrator.allocations.commands.health import degrade_unnoticed
from orchestrator.allocations.commands.verbs import order_verb
from orchestrator.allocations.queries import find_allocation, find_unnoticed_nodes
from orchestrator.allocations.states import Verb
from orchestrator.allocations.store import health
from orchestrator.nodes.commands.heartbeat import mark_node_offline
from orchestrator.operations.execution import Context
from tests.allocations.driving import TENANT, allocation_of, operation, provision, release, row_of, rows_of, run_with
from tests.allocations.seeding import Seeded, connect, create_allocation, seed
from tests.database.index_queries import explain_statement
from tests.health.sights import SILENT_SECONDS, contact, fall_silent, health_events, health_of, see

DOWN, ENDED, RUNNING, STOPPED = GuestReport.DOWN, GuestReport.ENDED, GuestReport.RUNNING, GuestReport.STOPPED
UNREACHABLE = GuestReport.UNREACHABLE


def _two_active(url: str, nodes: int = 1) -> tuple[Seeded, list[uuid.UUID]]:
    seeded = seed(url, slice_nodes=nodes)
    found = [create_allocation(url, seeded) for _ in range(2)]

    async def up(context: Context) -> None:
        for allocation_id in found:
            await provision(context, url, allocation_id)

    run_with(url, up)
    return seeded, found


def test_a_guest_that_is_down_is_degraded_once_then_lost_or_recovered(database_url: str) -> None:
    seeded, (mine, other) = _two_active(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        before = await see(context, node, (mine, RUNNING), (other, STOPPED))
        assert health_of(database_url, mine) == (None, None)
        for _ in range(3):
            await see(context, node, (mine, DOWN), (other, STOPPED))
        row = allocation_of(database_url, mine)
        assert (row["health"], row["health_cause"], row["proof_of_life_at"]) == ("degraded", "guest_down", before)
        await see(context, node, (mine, ENDED), (other, STOPPED))
        await see(context, node, (mine, ENDED), (other, STOPPED))
        assert health_of(database_url, mine) == ("lost", "guest_down")
        shown = (await find_allocation(context.database, mine, seeded.tenant_id))["health"]
        assert (shown["state"], shown["cause"]) == ("lost", "guest_down")
        assert datetime.fromisoformat(shown["last_proof_of_life_at"]) == before
        await see(context, node, (mine, RUNNING), (other, STOPPED))
        assert (await find_allocation(context.database, mine, None))["health"]["state"] == "healthy"

    run_with(database_url, way)
    assert health_events(database_url, mine) == ["degraded", "lost", "recovered"]
    assert health_events(database_url, other) == []
    tenants = rows_of(database_url, "select distinct tenant_id from outbox where event_type like 'allocation.%%'")
    assert tenants == [(seeded.tenant_id,)]
    notes = rows_of(
        database_url,
        "select code, detail from allocation_timeline where allocation_id = %s and actor_id = 'health' order by id", mine,
    )  # fmt: skip
    assert notes == [("degraded", "guest_down"), ("lost", "guest_down"), ("recovered", "guest_down")]


def test_an_unreachable_guest_is_announced_and_has_no_deadline_and_its_end_begins_an_outage(database_url: str) -> None:
    seeded, (mine, other) = _two_active(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        await see(context, node, (mine, RUNNING), (other, RUNNING))
        for _ in range(2):
            await see(context, node, (mine, UNREACHABLE), (other, RUNNING))
        row = allocation_of(database_url, mine)
        assert (row["health"], row["health_cause"], row["health_until"]) == ("degraded", "guest_unreachable", None)
        began = row["health_since"]
        ran = await see(context, node, (mine, UNREACHABLE), (other, RUNNING))
        await see(context, node, (mine, DOWN), (other, RUNNING))
        row = allocation_of(database_url, mine)
        assert (row["health"], row["health_cause"], row["proof_of_life_at"]) == ("degraded", "guest_down", ran)
        assert row["health_since"] > began, "while it was unreachable it ran"
        assert row["health_until"] is not None
        await see(context, node, (mine, UNREACHABLE), (other, RUNNING))
        assert health_of(database_url, mine) == (None, None), "it runs: its outage is over"
        await see(context, node, (mine, UNREACHABLE), (other, RUNNING))
        assert health_of(database_url, mine) == ("degraded", "guest_unreachable")
        await see(context, node, (mine, RUNNING), (other, RUNNING))

    run_with(database_url, way)
    assert health_of(database_url, mine) == (None, None)
    assert health_events(database_url, mine) == ["degraded", "degraded", "recovered", "degraded", "recovered"]
    assert health_events(database_url, other) == []


def test_the_silence_of_a_node_is_an_outage_of_unreachable_guests_too(database_url: str) -> None:
    seeded, (mine, other) = _two_active(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        await see(context, node, (mine, RUNNING), (other, RUNNING))
        await see(context, node, (mine, UNREACHABLE), (other, RUNNING))
        fall_silent(database_url, node)
        await mark_node_offline(context, node, SILENT_SECONDS)
        assert health_of(database_url, mine) == health_of(database_url, other) == ("degraded", "node_silent")
        assert allocation_of(database_url, mine)["health_until"] is not None

    run_with(database_url, way)


def test_an_offline_node_is_found_whose_only_guest_is_unreachable(database_url: str) -> None:
    seeded = seed(database_url)
    node, mine = seeded.nodes[0].id, create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await provision(context, database_url, mine)
        await see(context, node, (mine, RUNNING))
        await see(context, node, (mine, UNREACHABLE))
        with connect(database_url) as database:
            database.execute("update nodes set online = false where id = %s", (node,))
        assert await find_unnoticed_nodes(context, 10) == [node]
        assert await degrade_unnoticed(context, node)
        assert await find_unnoticed_nodes(context, 10) == []

    run_with(database_url, way)
    assert health_of(database_url, mine) == ("degraded", "node_silent")


def test_a_guest_that_is_gone_is_noticed_only_by_an_inventory_from_after_its_start(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        told = await contact(context, node)
        await provision(context, database_url, mine)
        await see(context, node, after=told)
        assert health_of(database_url, mine) == (None, None)
        await see(context, node)
        assert health_of(database_url, mine) == ("degraded", "guest_gone")

    run_with(database_url, way)
    assert health_events(database_url, mine) == ["degraded"]


def test_a_late_inventory_changes_nothing(database_url: str) -> None:
    seeded, (mine, other) = _two_active(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        told = await see(context, node, (mine, RUNNING), (other, RUNNING))
        await see(context, node, (mine, DOWN), (other, RUNNING), after=told)
        assert health_of(database_url, mine) == (None, None)
        await see(context, node, (mine, DOWN), (other, RUNNING))
        await see(context, node, (mine, RUNNING), (other, RUNNING), after=told)
        assert health_of(database_url, mine) == ("degraded", "guest_down")

    run_with(database_url, way)
    assert health_events(database_url, mine) == ["degraded"]


def test_during_a_verb_a_guest_may_be_down(database_url: str) -> None:
    seeded, (mine, other) = _two_active(database_url)
    node = seeded.nodes[0].id
    with connect(database_url) as database:
        database.execute("update allocations set guest_verb = 'reboot' where id = %s", (mine,))
    run_with(database_url, lambda context: see(context, node, (mine, DOWN), (other, DOWN)))
    assert (health_of(database_url, mine)[0], health_of(database_url, other)[0]) == (None, "degraded")


def test_a_lying_agent_changes_nothing_of_another_node(database_url: str) -> None:
    seeded, (mine, other) = _two_active(database_url, nodes=2)
    where = allocation_of(database_url, mine)["node_id"]
    liar = next(node.id for node in seeded.nodes if node.id != where)
    of_liar = [other] if allocation_of(database_url, other)["node_id"] == liar else []
    run_with(database_url, lambda context: see(context, liar, (mine, ENDED), *((o, RUNNING) for o in of_liar)))
    assert health_of(database_url, mine) == (None, None)
    assert health_events(database_url, mine) == []

    async def silence_then_lie(context: Context) -> None:
        fall_silent(database_url, where)
        await mark_node_offline(context, where, SILENT_SECONDS)
        await see(context, liar, (mine, RUNNING), *((o, RUNNING) for o in of_liar))

    run_with(database_url, silence_then_lie)
    assert health_of(database_url, mine) == ("degraded", "node_silent")


def test_a_silent_node_degrades_each_of_its_allocations_once_for_their_tenants(database_url: str) -> None:
    seeded, mine = _two_active(database_url)
    node = seeded.nodes[0].id
    pending = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await see(context, node, *((one, RUNNING) for one in mine))
        fall_silent(database_url, node)
        assert await mark_node_offline(context, node, SILENT_SECONDS)
        assert not await mark_node_offline(context, node, SILENT_SECONDS)
        assert await degrade_unnoticed(context, node) == 0
        proof = row_of(database_url, "select inventory_after from nodes where id = %s", node)["inventory_after"]
        for one in mine:
            row = allocation_of(database_url, one)
            assert row["proof_of_life_at"] == max(proof, row["active_at"])
        await contact(context, node)
        assert [health_of(database_url, one)[0] for one in mine] == ["degraded"] * 2, (
            "a heartbeat alone proves no guest"
        )
        await see(context, node, *((one, RUNNING) for one in mine))

    run_with(database_url, way)
    for one in mine:
        assert health_events(database_url, one) == ["degraded", "recovered"]
    assert health_events(database_url, pending) == []


def test_an_agent_of_the_version_before_ends_the_silence_and_nothing_else(database_url: str) -> None:
    seeded, (mine, other) = _two_active(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        await see(context, node, (mine, DOWN), (other, RUNNING))
        fall_silent(database_url, node)
        await mark_node_offline(context, node, SILENT_SECONDS)
        await see(context, node, (mine, None), (other, None))

    run_with(database_url, way)
    assert health_events(database_url, mine) == ["degraded"]
    assert health_events(database_url, other) == ["degraded", "recovered"]


@pytest.mark.parametrize("online", [True, False])
def test_allocations_of_a_node_that_is_offline_by_another_door_are_found(database_url: str, online: bool) -> None:
    seeded, (mine, _) = _two_active(database_url)
    node = seeded.nodes[0].id
    with connect(database_url) as database:
        database.execute("update nodes set online = %s where id = %s", (online, node))

    async def sweep(context: Context) -> list[uuid.UUID]:
        async with context.database.reading():
            found = await find_unnoticed_nodes(context, 10)
        await degrade_unnoticed(context, node)
        return found

    assert run_with(database_url, sweep) == ([] if online else [node])
    assert health_events(database_url, mine) == ([] if online else ["degraded"])


def test_a_release_ends_the_health(database_url: str) -> None:
    seeded, (mine, other) = _two_active(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        await see(context, node, (mine, ENDED), (other, RUNNING))
        await release(context, seeded, mine)
        await see(context, node, (mine, ENDED), (other, RUNNING))
        assert (await find_allocation(context.database, mine, None))["health"] is None

    run_with(database_url, way)
    assert health_of(database_url, mine) == (None, None)
    assert health_events(database_url, mine) == ["lost"]


def test_the_tenant_can_start_a_guest_that_ended_although_it_counts_as_running(database_url: str) -> None:
    seeded, (mine, other) = _two_active(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> list[str]:
        await see(context, node, (mine, ENDED), (other, RUNNING))
        key = iter("ab")
        tenant = seeded.tenant_id
        answers = [
            await order_verb(context, operation(seeded, next(key)), TENANT, tenant, one, Verb.START)
            for one in (mine, other)
        ]
        return [json.loads(answer.body)["guest"]["verb"] for answer in answers]

    assert run_with(database_url, way) == ["start", None]


def test_a_heartbeat_without_a_change_reads_by_index_and_writes_nothing(database_url: str) -> None:
    seeded, (mine, other) = _two_active(database_url)
    node = seeded.nodes[0].id
    run_with(database_url, lambda context: see(context, node, (mine, DOWN), (other, RUNNING)))
    before = [allocation_of(database_url, one) for one in (mine, other)]
    run_with(database_url, lambda context: see(context, node, (mine, DOWN), (other, RUNNING)))
    assert [allocation_of(database_url, one) for one in (mine, other)] == before
    values = {"node_id": node, "held": "[]", "after": datetime.now(UTC)}
    with connect(database_url) as database:
        # A planner reads a table of two rows as a whole.
        database.execute("set enable_seqscan = off")
        for statement in (health._DIFFERENT, health._HEALTHY_OF_NODE):
            assert "allocations_live_by_node" in explain_statement(database, statement, values)
