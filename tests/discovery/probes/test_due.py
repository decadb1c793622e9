"""When a probe is due: after the discovery, periodically, after an enrolment, and after each release."""

from __future__ import annotations

import uuid

from orchestrator.nodes.probes.queries import find_due_probes
from orchestrator.operations.execution import Context
from tests.allocations.driving import clean_up, provision, release, rows_of, run_with
from tests.allocations.seeding import connect, create_allocation, seed
from tests.discovery.probes.reports import answer, find_gpus, health, issue, probe, probe_task
from tests.discovery.topologies import beat


def test_a_probe_is_due_after_the_discovery_periodically_and_after_an_enrolment(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await beat(context, node, uuid.uuid4())
        assert await find_due_probes(context, 10) == [], "the GPUs of the slots are not known yet"
        await find_gpus(context, database_url, node)
        assert await issue(context) == [node]
        assert await find_due_probes(context, 10) == [], "one is open"
        await answer(context, database_url, node, health())
        for due in ("update nodes set epoch = epoch + 1", "update node_health set next_at = clock_timestamp()"):
            assert await find_due_probes(context, 10) == []
            with connect(database_url) as connection:
                connection.execute(due)
            assert await issue(context) == [node]
            await answer(context, database_url, node, health())
        for change in ("online = false", "online = true, state = 'retired'"):
            with connect(database_url) as connection:
                connection.execute("update node_health set next_at = clock_timestamp()")
                connection.execute(f"update nodes set {change}")
            assert await find_due_probes(context, 10) == []

    run_with(database_url, way)
    tasks = "select count(*) from node_tasks where type = 'diag.health_probe'"
    assert rows_of(database_url, tasks) == [(1,)], "earlier tasks are deleted"


def test_a_release_makes_a_probe_due_also_while_one_is_open(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    first, second = create_allocation(database_url, seeded), create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        await provision(context, database_url, first)
        await provision(context, database_url, second)
        await probe(context, database_url, node, health())
        assert await find_due_probes(context, 10) == []
        await release(context, seeded, first)
        assert await find_due_probes(context, 10) == [], "the guest is still there"
        await clean_up(context, database_url, first)
        assert await issue(context) == [node]
        await release(context, seeded, second)
        await clean_up(context, database_url, second)
        await answer(context, database_url, node, health())
        assert await issue(context) == [node], "the open probe may have read before the second release"

    run_with(database_url, way)
    assert probe_task(database_url)["state"] == "queued"
