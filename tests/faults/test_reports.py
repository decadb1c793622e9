"""A report marks the units of an active allocation: the release that frees them puts them into quarantine."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import nullcontext
from typing import Any

import pytest

from orchestrator.allocations.commands.faults import retire_reports
from orchestrator.allocations.commands.force import force_cleanup, force_release
from orchestrator.allocations.fault_queries import find_report, list_reports
from orchestrator.allocations.rules import OPEN_REPORTS_MAX
from orchestrator.nodes.commands.quarantines import quarantine_slot, return_slot
from orchestrator.operations.execution import Context, Limits
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import NotFound, Problem
from tests.allocations.driving import ADMIN, clean_up, provision, release, row_of, rows_of, run_with
from tests.allocations.reconciling import admin_operation, kept
from tests.allocations.seeding import Seeded, connect, create_allocation, seed, try_create
from tests.faults.reporting import code_of, send_report, states_of_slots, types_of_events
from tests.nodes.answers import body_of

FIRST = uuid.UUID(int=0)
REASON = "quarantined: fault reported: gpu_error"


def test_a_report_marks_the_units_and_their_release_quarantines_them(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    mine = create_allocation(database_url, seeded, gpus=2)

    async def way(context: Context) -> tuple[Answer, list[Any], list[Any]]:
        await provision(context, database_url, mine)
        answer = await send_report(context, seeded, mine)
        before = await states_of_slots(context, node)
        await release(context, seeded, mine)
        await clean_up(context, database_url, mine)
        return answer, before, await states_of_slots(context, node)

    answer, before, after = run_with(database_url, way)
    report = body_of(answer)
    assert (answer.status, report["symptom"], report["details"]) == (201, "gpu_error", {"xid": "79"})
    assert [before[slot] for slot in report["slots"]] == [("allocated", None)] * 2
    assert [after[slot] for slot in report["slots"]] == [("out_of_service", REASON)] * 2
    assert [state for state, _ in after].count("free") == 6
    with connect(database_url) as database:
        assert try_create(database, seeded, gpus=8) is None
    stored = row_of(database_url, "select evidence, closed_at is not null as closed from fault_reports")
    assert stored == {"evidence": "XID 79\n\tGPU has fallen off the bus", "closed": True}
    begun = rows_of(
        database_url, "select slot_index, source, quarantined_by, fault_report_id from slot_quarantines order by 1"
    )
    report_id = uuid.UUID(report["report_id"])
    assert begun == [(slot, "fault_report", "system:fault_report", report_id) for slot in report["slots"]]
    assert types_of_events(database_url, "%fault_reported") == ["node.fault_reported", "allocation.fault_reported"]
    assert types_of_events(database_url, "node.slot%") == ["node.slot_quarantined"] * 2
    assert kept(database_url) == []


def test_the_units_are_never_free_between_release_and_quarantine(database_url: str) -> None:
    """Each create while the release commits finds no room on a node whose every slot is reported."""
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded, gpus=8)

    def create() -> uuid.UUID | None:
        with connect(database_url) as database:
            return try_create(database, seeded)

    async def race(context: Context) -> list[Any]:
        await provision(context, database_url, mine)
        await send_report(context, seeded, mine)
        await release(context, seeded, mine)
        creates = [asyncio.to_thread(create) for _ in range(12)]
        _, *made = await asyncio.gather(clean_up(context, database_url, mine), *creates)
        return [*made, await asyncio.to_thread(create)]

    assert run_with(database_url, race) == [None] * 13
    assert rows_of(database_url, "select count(*) from slots where state = 'in_service'") == [(0,)]
    assert kept(database_url) == []


def test_an_operators_statement_frees_nothing_that_was_reported(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    mine = create_allocation(database_url, seeded, gpus=8)

    async def way(context: Context) -> list[Any]:
        await provision(context, database_url, mine)
        await send_report(context, seeded, mine)
        await force_release(context, admin_operation(), ADMIN, mine, "stuck")
        await force_cleanup(context, admin_operation(), ADMIN, mine, "machine was reset")
        return await states_of_slots(context, node)

    assert run_with(database_url, way) == [("out_of_service", REASON)] * 8
    assert kept(database_url) == []


def test_a_slot_in_quarantine_already_stays_in_that_one_and_returns_as_any(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    mine = create_allocation(database_url, seeded, gpus=8)

    async def way(context: Context) -> list[Any]:
        await provision(context, database_url, mine)
        await send_report(context, seeded, mine)
        await quarantine_slot(context, admin_operation(), ADMIN, node, 0, reason="XID 79", evidence=None)
        await release(context, seeded, mine)
        await clean_up(context, database_url, mine)
        await return_slot(context, admin_operation(), ADMIN, node, 1, note="GPU replaced", without_burn_in=True)
        return (await states_of_slots(context, node))[:3]

    found = run_with(database_url, way)
    assert found == [("out_of_service", "quarantined: XID 79"), ("free", None), ("out_of_service", REASON)]
    assert kept(database_url) == []


def test_a_repetition_reports_once_and_open_reports_are_bounded(database_url: str) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> list[Answer]:
        await provision(context, database_url, mine)
        first = [await send_report(context, seeded, mine, key="one") for _ in range(2)]
        return first + [await send_report(context, seeded, mine) for _ in range(OPEN_REPORTS_MAX)]

    once, again, *others, refused = run_with(database_url, way)
    assert (once.body, again.replayed) == (again.body, True)
    assert [answer.status for answer in others] == [201] * (OPEN_REPORTS_MAX - 1)
    assert code_of(refused) == (409, "fault_reports_open")
    assert rows_of(database_url, "select count(*) from fault_reports") == [(OPEN_REPORTS_MAX,)]


def test_a_tenants_reports_of_a_day_are_bounded_also_at_once(database_url: str) -> None:
    seeded = seed(database_url)
    mine = [create_allocation(database_url, seeded) for _ in range(6)]

    async def way(context: Context) -> list[Any]:
        for one in mine:
            await provision(context, database_url, one)
        sent = [send_report(context, seeded, one) for one in mine]
        return await asyncio.gather(*sent, return_exceptions=True)

    answers = run_with(database_url, way, limits=Limits(fault_reports_per_day_max=4))
    refused = [answer for answer in answers if isinstance(answer, Problem)]
    assert [problem.code for problem in refused] == ["too_many_fault_reports"] * 2
    assert rows_of(database_url, "select count(*) from fault_reports") == [(4,)]
    with connect(database_url) as database:
        database.execute("update fault_reports set reported_at = reported_at - interval '25 hours'")
    again = run_with(
        database_url,
        lambda context: send_report(context, seeded, mine[0]),
        limits=Limits(fault_reports_per_day_max=4),
    )
    assert again.status == 201


@pytest.mark.parametrize("state", ["requested", "releasing"])
def test_only_an_active_allocation_is_reported(database_url: str, state: str) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> list[Answer]:
        if state == "releasing":
            await provision(context, database_url, mine)
            await release(context, seeded, mine)
        return [await send_report(context, seeded, mine), await send_report(context, seeded, uuid.uuid4())]

    wrong, unknown = run_with(database_url, way)
    assert (code_of(wrong), body_of(wrong)["state"]) == ((409, "invalid_state"), state)
    assert code_of(unknown) == (404, "not_found")
    assert rows_of(database_url, "select count(*) from fault_reports") == [(0,)]


def test_another_tenants_allocation_is_not_found(database_url: str) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded)
    stranger = Seeded(uuid.uuid4(), seeded.ssh_key_id)

    async def way(context: Context) -> Answer:
        await provision(context, database_url, mine)
        return await send_report(context, stranger, mine)

    assert code_of(run_with(database_url, way)) == (404, "not_found")


def test_a_tenant_reads_its_own_reports_and_no_other(database_url: str) -> None:
    seeded = seed(database_url)
    stranger = Seeded(uuid.uuid4(), seeded.ssh_key_id)
    allocations = [create_allocation(database_url, seeded) for _ in range(3)]

    async def way(context: Context) -> list[uuid.UUID]:
        sent = []
        for one in allocations:
            await provision(context, database_url, one)
            sent.append(uuid.UUID(body_of(await send_report(context, seeded, one))["report_id"]))
        await release(context, seeded, allocations[0])
        await clean_up(context, database_url, allocations[0])
        return sent

    async def read(context: Context, tenant: Seeded, *, every: bool) -> list[uuid.UUID]:
        found = await list_reports(context.database, tenant.tenant_id, every=every, after=FIRST, limit=10)
        return [report.id for report in found]

    async def reads(context: Context) -> tuple[list[uuid.UUID], ...]:
        own, open_ = await read(context, seeded, every=True), await read(context, seeded, every=False)
        for tenant, found in ((seeded, True), (stranger, False)):
            with nullcontext() if found else pytest.raises(NotFound):
                assert (await find_report(context.database, own[0], tenant.tenant_id)).id == own[0]
        return own, open_, await read(context, stranger, every=True)

    sent = run_with(database_url, way)
    assert run_with(database_url, reads) == (sent, sent[1:], [])


def test_closed_reports_are_deleted_after_their_retention_and_open_ones_stay(database_url: str) -> None:
    seeded = seed(database_url)
    over, live = create_allocation(database_url, seeded), create_allocation(database_url, seeded)

    async def way(context: Context) -> list[int]:
        for one in (over, live):
            await provision(context, database_url, one)
            await send_report(context, seeded, one)
        await release(context, seeded, over)
        await clean_up(context, database_url, over)
        return [await retire_reports(context, 3600.0, 10), await retire_reports(context, 0.0, 10)]

    assert run_with(database_url, way) == [0, 1]
    assert rows_of(database_url, "select allocation_id from fault_reports") == [(live,)]
    assert kept(database_url) == []
