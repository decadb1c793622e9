"""A replacement is placed with its report, and takes over when it is active; until then the faulty allocation stays."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.allocations.commands.faults import conclude_replacement
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.fault_queries import find_ended_replacements
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Overloaded
from tests.allocations.driving import (
    PROVISIONED,
    allocation_of,
    clean_up,
    completed,
    failed,
    provision,
    release,
    report,
    row_of,
    rows_of,
    run_with,
    task_of,
)
from tests.allocations.reconciling import kept
from tests.allocations.seeding import Seeded, connect, create_allocation, seed, try_create
from tests.faults.reporting import code_of, send_report, types_of_events
from tests.nodes.answers import body_of
from worker.sweepers.faults import sweep_faults

SAME = (
    "sku", "shape", "gpu_model", "gpus", "region", "image", "price_version", "name", "labels", "user_data",
    "ssh_public_keys", "ends_at", "restart_policy", "tenant_id",
)  # fmt: skip
NO_RETENTION = 1e9


async def _reported(context: Context, url: str, seeded: Seeded, mine: uuid.UUID) -> tuple[Answer, uuid.UUID]:
    await provision(context, url, mine)
    answer = await send_report(context, seeded, mine, replace=True)
    assert answer.status == 201, answer.body
    return answer, uuid.UUID(body_of(answer)["replacement_id"])


def _report(url: str) -> dict[str, Any]:
    return row_of(url, "select id, replacement_id, replacement_outcome, waits_for, closed_at from fault_reports")


@pytest.mark.parametrize(("shape", "nodes"), [("gpu_slice", 1), ("gpu_slice", 2), ("baremetal", 2)])
def test_the_replacement_takes_over_when_it_is_active(database_url: str, shape: str, nodes: int) -> None:
    metal = shape == "baremetal"
    seeded = seed(database_url, slice_nodes=0 if metal else nodes, metal_nodes=nodes if metal else 0, gpus_limit=8)
    ends_at = datetime.now(UTC) + timedelta(hours=5)
    mine = create_allocation(database_url, seeded, gpus=4, shape=shape, name="a", labels={"b": "c"}, ends_at=ends_at)
    with connect(database_url) as database:
        database.execute("update allocations set user_data = '#!/bin/sh'")

    async def way(context: Context) -> tuple[uuid.UUID, list[str]]:
        _, other = await _reported(context, database_url, seeded, mine)
        old, new = allocation_of(database_url, mine), allocation_of(database_url, other)
        assert {name: old[name] for name in SAME} == {name: new[name] for name in SAME}
        assert (old["state"], new["state"], new["node_id"] != old["node_id"]) == ("active", "requested", nodes == 2)
        assert not rows_of(
            database_url, "select from claims a join claims b on a.id < b.id and a.units && b.units where a.occupied"
        )
        seen = []
        await sweep_faults(context, NO_RETENTION, 10)
        seen.append(allocation_of(database_url, mine)["state"])
        await provision(context, database_url, other)
        await sweep_faults(context, NO_RETENTION, 10)
        seen.append(allocation_of(database_url, mine)["state"])
        await clean_up(context, database_url, mine)
        return other, seen

    other, seen = run_with(database_url, way)
    assert seen == ["active", "releasing"]
    assert allocation_of(database_url, other)["state"] == "active"
    found = _report(database_url)
    assert (found["replacement_outcome"], found["waits_for"], found["closed_at"] is not None) == (
        "replaced",
        None,
        True,
    )
    assert types_of_events(database_url, "allocation.repl%") == ["allocation.replaced"]
    assert rows_of(database_url, "select count(*) from slot_quarantines") == [(8 if metal else 4,)]
    assert kept(database_url) == []


def test_the_faulty_allocation_stays_until_the_replacement_is_active(database_url: str) -> None:
    """Asked for directly, whatever the sweeper finds."""
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> list[Any]:
        answer, other = await _reported(context, database_url, seeded, mine)
        report_id = uuid.UUID(body_of(answer)["report_id"])

        async def conclude() -> tuple[Any, ...]:
            outcome = await conclude_replacement(context, report_id)
            return outcome, allocation_of(database_url, mine)["state"], allocation_of(database_url, other)["state"]

        seen = [await conclude()]
        await begin_provisioning(context, other, "wf")
        seen.append(await conclude())
        task = task_of(database_url, other)
        await report(context, task, completed(task, PROVISIONED))
        await finish_provisioning(context, other)
        return [*seen, await conclude()]

    assert run_with(database_url, way) == [
        (None, "active", "requested"), (None, "active", "provisioning"), ("replaced", "releasing", "active"),
    ]  # fmt: skip


def test_the_quota_counts_both_and_its_limit_lets_the_replacement_in(database_url: str) -> None:
    seeded = seed(database_url, gpus_limit=4)
    mine = create_allocation(database_url, seeded, gpus=4)

    async def way(context: Context) -> list[Any]:
        _, other = await _reported(context, database_url, seeded, mine)
        used = "select gpus_used from tenant_quotas"
        seen = [rows_of(database_url, used)[0][0]]
        await provision(context, database_url, other)
        await sweep_faults(context, NO_RETENTION, 10)
        await clean_up(context, database_url, mine)
        return [*seen, rows_of(database_url, used)[0][0]]

    assert run_with(database_url, way) == [8, 4]
    assert kept(database_url) == []


def test_without_room_nothing_changes(database_url: str) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded, gpus=8)

    async def way(context: Context) -> Answer:
        await provision(context, database_url, mine)
        return await send_report(context, seeded, mine, replace=True)

    answer = run_with(database_url, way)
    assert (code_of(answer), body_of(answer)["reason"]) == ((409, "sku_unavailable"), "busy_now")
    assert rows_of(database_url, "select count(*) from fault_reports") == [(0,)]
    assert rows_of(database_url, "select count(*) from allocations") == [(1,)]
    assert allocation_of(database_url, mine)["state"] == "active"
    assert types_of_events(database_url, "%fault%") == []
    assert kept(database_url) == []


@pytest.mark.parametrize(("column", "code"), [("depleted_at = now()", (409, "balance_depleted"))], ids=["depleted"])
def test_a_tenant_that_may_not_create_gets_no_replacement(
    database_url: str, column: str, code: tuple[int, str]
) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> Answer:
        await provision(context, database_url, mine)
        with connect(database_url) as database:
            database.execute("update tenants set depleted_at = now()")
        return await send_report(context, seeded, mine, replace=True)

    assert code_of(run_with(database_url, way)) == (409, "balance_depleted")
    assert rows_of(database_url, "select count(*) from allocations") == [(1,)]


def test_a_failed_replacement_leaves_the_old_allocation_and_another_may_follow(database_url: str) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> list[Any]:
        _, other = await _reported(context, database_url, seeded, mine)
        second = await send_report(context, seeded, mine, replace=True)
        for _ in range(3):
            begun = await begin_provisioning(context, other, "w")
            assert begun is not None
            task = task_of(database_url, other)
            await report(context, task, failed(task))
            await finish_provisioning(context, other)
            if allocation_of(database_url, other)["state"] == "failed":
                break
        await sweep_faults(context, NO_RETENTION, 10)
        state = allocation_of(database_url, mine)["state"]
        return [code_of(second), state, (await send_report(context, seeded, mine, replace=True)).status]

    assert run_with(database_url, way) == [(409, "replacement_in_progress"), "active", 201]
    outcomes = rows_of(database_url, "select replacement_outcome from fault_reports order by id")
    assert outcomes == [("failed",), (None,)]
    assert types_of_events(database_url, "allocation.repl%") == ["allocation.replacement_failed"]
    assert kept(database_url) == []


def test_a_tenant_that_releases_the_old_one_first_keeps_the_replacement(database_url: str) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> uuid.UUID:
        _, other = await _reported(context, database_url, seeded, mine)
        await release(context, seeded, mine)
        await sweep_faults(context, NO_RETENTION, 10)
        return other

    other = run_with(database_url, way)
    assert (_report(database_url)["replacement_outcome"], allocation_of(database_url, other)["state"]) == (
        "released",
        "requested",
    )
    assert kept(database_url) == []


def test_the_wait_ends_at_its_deadline_and_both_stay(database_url: str) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> tuple[list[uuid.UUID], uuid.UUID]:
        _, other = await _reported(context, database_url, seeded, mine)
        before = await find_ended_replacements(context, 10)
        with connect(database_url) as database:
            database.execute("update fault_reports set waits_until = clock_timestamp()")
        await sweep_faults(context, NO_RETENTION, 10)
        return before, other

    before, other = run_with(database_url, way)
    assert (before, _report(database_url)["replacement_outcome"]) == ([], "overdue")
    assert [allocation_of(database_url, one)["state"] for one in (mine, other)] == ["active", "requested"]
    assert types_of_events(database_url, "allocation.repl%") == ["allocation.replacement_failed"]


def test_two_sweepers_and_the_tenant_release_the_old_allocation_once(database_url: str) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> list[Any]:
        answer, other = await _reported(context, database_url, seeded, mine)
        await provision(context, database_url, other)
        report_id = uuid.UUID(body_of(answer)["report_id"])
        concluding = [conclude_replacement(context, report_id) for _ in range(3)]
        *outcomes, released = await asyncio.gather(*concluding, release(context, seeded, mine))
        return [sorted(map(str, outcomes))[:2], getattr(released, "status", None)]

    ended, status = run_with(database_url, way, pool_size=6)
    assert (ended, status) == (["None", "None"], 202)
    assert types_of_events(database_url, "provisioning.releasing.requested") == ["provisioning.releasing.requested"]
    assert len(types_of_events(database_url, "allocation.repl%")) == 1
    assert kept(database_url) == []


def test_a_repetition_places_one_replacement_also_at_once(database_url: str) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> set[str]:
        await provision(context, database_url, mine)
        sent = [send_report(context, seeded, mine, replace=True, key="one") for _ in range(4)]
        return {answer.body for answer in await asyncio.gather(*sent)}

    assert len(run_with(database_url, way, pool_size=6)) == 1
    assert rows_of(database_url, "select count(*) from allocations") == [(2,)]
    assert kept(database_url) == []


async def _until_answered(context: Context, seeded: Seeded, mine: uuid.UUID) -> Answer:
    """As a client does: 503 is retried with the same key."""
    while True:
        try:
            return await send_report(context, seeded, mine, replace=True, key=str(mine))
        except Overloaded:
            continue


def test_replacements_and_creates_at_once_share_no_unit(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=2)
    mine = [create_allocation(database_url, seeded, gpus=2) for _ in range(3)]

    def create() -> uuid.UUID | None:
        with connect(database_url) as database:
            return try_create(database, seeded)

    async def race(context: Context) -> list[Answer]:
        for one in mine:
            await provision(context, database_url, one)
        creates = [asyncio.to_thread(create) for _ in range(4)]
        sent = [_until_answered(context, seeded, one) for one in mine]
        answers = await asyncio.gather(*sent, *creates)
        return [answer for answer in answers[:3] if isinstance(answer, Answer)]

    answers = run_with(database_url, race, pool_size=8)
    assert [answer.status for answer in answers] == [201] * 3
    assert len({body_of(answer)["replacement_id"] for answer in answers}) == 3
    shared = "select from claims a join claims b on a.id < b.id and a.units && b.units where a.occupied and b.occupied"
    assert rows_of(database_url, shared) == []
    assert kept(database_url) == []
