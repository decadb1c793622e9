"""A slot that a fault of the hardware took out returns after a burn-in that passed since its last fault, or by an override."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from node_agent.protocol import FailureCode
from orchestrator.nodes.commands.burn_ins import Advanced, advance_burn_in
from orchestrator.nodes.commands.probes import Taken, issue_probe, take_probe
from orchestrator.nodes.commands.quarantines import quarantine_slot
from orchestrator.nodes.probes.queries import find_health
from orchestrator.operations.execution import Context
from tests.allocations.driving import (
    ADMIN,
    clean_up,
    completed,
    provision,
    release,
    report,
    row_of,
    rows_of,
    run_with,
)
from tests.allocations.reconciling import admin_operation, kept, slots_out_of_service
from tests.allocations.seeding import connect, create_allocation, seed
from tests.discovery.probes.reports import (
    HOUR_SECONDS,
    POLICY,
    disk,
    find_gpus,
    gpu,
    health,
    probe,
    probe_task,
    result_of,
    xid,
)
from tests.faults.reporting import send_report
from tests.nodes.answers import body_of
from tests.nodes.burn_ins.running import (
    AUTOMATIC,
    FAULTY,
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

REQUIRED = (409, "burn_in_required")
RETURNS = "select payload from outbox where event_type = 'node.slot_returned' order by id"


async def fault(context: Context, url: str, node: uuid.UUID, index: int = 6) -> None:
    """A probe takes the slot into quarantine."""
    await find_gpus(context, url, node)
    can_burn_in(url)
    assert await probe(context, url, node, health(xid(index))) is Taken.QUARANTINED


def quarantine_row(url: str) -> dict[str, Any]:
    return row_of(url, "select * from slot_quarantines")


def test_a_return_needs_a_burn_in_that_passed(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await fault(context, database_url, node)
        refused = await return_(context, node, 6)
        assert refusal_of(refused) == REQUIRED
        said = body_of(refused)
        assert (said["slot"], said["source"]) == (6, "probe")
        assert "berth node burn-in NODE --slot 6" in said["detail"]
        assert slots_out_of_service(database_url) == [6]
        assert await burn(context, database_url, node, FAULTY, slot=6) is Advanced.FAULTY
        refused = await return_(context, node, 6)
        assert (refusal_of(refused), "memory: byte 7" in body_of(refused)["detail"]) == (REQUIRED, True)
        assert await burn(context, database_url, node, FailureCode.INTERRUPTED, slot=6) is Advanced.FAILED
        assert refusal_of(await return_(context, node, 6)) == REQUIRED
        assert await burn(context, database_url, node, slot=6) is Advanced.PASSED
        assert slots_out_of_service(database_url) == [6], "a person returns it"
        returned = await return_(context, node, 6)
        assert returned.status == 200
        assert body_of(returned)["burn_in_id"] == str(
            rows_of(database_url, "select id from node_burn_ins where outcome = 'passed'")[0][0]
        )
        assert slots_out_of_service(database_url) == []

    run_with(database_url, way)
    ((event,),) = rows_of(database_url, RETURNS)
    assert event["burn_in_id"] == str(quarantine_row(database_url)["burn_in_id"])
    assert kept(database_url) == []


def test_an_operator_may_return_a_slot_without_one_and_it_is_audited(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await fault(context, database_url, node)
        assert (await return_(context, node, 6, without_burn_in=True)).status == 200

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []
    assert quarantine_row(database_url)["burn_in_id"] is None
    ((said,),) = rows_of(database_url, "select detail from audit where action = 'node.slot_return'")
    assert (said["without_burn_in"], said["note"]) == (True, "GPU replaced")


def test_a_fault_that_a_later_burn_in_finds_voids_the_pass_before(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await fault(context, database_url, node)
        assert await burn(context, database_url, node, slot=6) is Advanced.PASSED
        assert await burn(context, database_url, node, FAULTY, slot=6) is Advanced.FAULTY
        assert refusal_of(await return_(context, node, 6)) == REQUIRED
        assert await burn(context, database_url, node, slot=6) is Advanced.PASSED
        assert (await return_(context, node, 6)).status == 200

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []


def test_a_fault_during_an_operators_quarantine_needs_one_too(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        can_burn_in(database_url)
        await quarantine_slot(context, admin_operation(), ADMIN, node, 6, reason="cabling", evidence=None)
        await probe(context, database_url, node, health(xid(6)))
        assert refusal_of(await return_(context, node, 6)) == REQUIRED
        assert await burn(context, database_url, node, slot=6) is Advanced.PASSED
        assert (await return_(context, node, 6)).status == 200

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []


def test_a_quarantine_of_an_operator_ends_by_the_operators_word(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await quarantine_slot(context, admin_operation(), ADMIN, node, 2, reason="noise", evidence=None)
        assert (await return_(context, node, 2)).status == 200

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []


def test_a_fault_report_needs_one_too(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    can_burn_in(database_url)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await provision(context, database_url, mine)
        assert (await send_report(context, seeded, mine)).status == 201
        await release(context, seeded, mine)
        await clean_up(context, database_url, mine)
        assert refusal_of(await return_(context, node, 0)) == REQUIRED
        assert await burn(context, database_url, node, policy=AUTOMATIC) is Advanced.RETURNED

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []


def test_a_fault_report_during_an_operators_quarantine_needs_one_too(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    can_burn_in(database_url)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await provision(context, database_url, mine)
        await quarantine_slot(context, admin_operation(), ADMIN, node, 0, reason="cabling", evidence=None)
        assert (await send_report(context, seeded, mine)).status == 201
        await release(context, seeded, mine)
        await clean_up(context, database_url, mine)
        assert refusal_of(await return_(context, node, 0)) == REQUIRED

    run_with(database_url, way)
    assert rows_of(database_url, "select source from slot_quarantines") == [("operator",)]
    assert rows_of(database_url, "select count(*) from outbox where event_type = 'node.slot_quarantined'") == [(1,)]


@pytest.mark.parametrize("other", [5, 7])
def test_a_burn_in_of_another_slot_does_not_count(database_url: str, other: int) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await fault(context, database_url, node)
        await quarantine_slot(context, admin_operation(), ADMIN, node, other, reason="noise", evidence=None)
        assert await burn(context, database_url, node, slot=other) is Advanced.PASSED
        assert refusal_of(await return_(context, node, 6)) == REQUIRED

    run_with(database_url, way)


def test_a_quarantine_that_begins_after_the_burn_in_began_needs_another(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await fault(context, database_url, node)
        assert await burn(context, database_url, node, slot=6) is Advanced.PASSED
        assert (await return_(context, node, 6)).status == 200
        assert await probe(context, database_url, node, health(xid(6, count=9))) is Taken.QUARANTINED
        assert refusal_of(await return_(context, node, 6)) == REQUIRED, "the one before proves nothing"

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == [6]


@pytest.mark.parametrize("policy", ["person", "automatic"])
def test_another_fault_while_it_is_tested_makes_the_burn_in_not_count(database_url: str, policy: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await fault(context, database_url, node)
        await ask(context, node, 6)
        await issue(context, node)
        assert await probe(context, database_url, node, health(xid(6, count=5))) is Taken.FAULTY
        if policy == "automatic":
            assert await answer(context, database_url, node, burned_in(), AUTOMATIC) is Advanced.PASSED
        else:
            assert await answer(context, database_url, node, burned_in()) is Advanced.PASSED
        assert refusal_of(await return_(context, node, 6)) == REQUIRED
        assert slots_out_of_service(database_url) == [6]
        assert await probe(context, database_url, node, health(xid(6, count=5))) is Taken.FAULTY, "no other one"
        assert await burn(context, database_url, node, slot=6, policy=AUTOMATIC) is Advanced.RETURNED

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []


def test_the_same_fault_again_does_not_void_a_burn_in(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await fault(context, database_url, node)
        assert await burn(context, database_url, node, slot=6) is Advanced.PASSED
        assert await probe(context, database_url, node, health(xid(6))) is Taken.FAULTY
        assert (await return_(context, node, 6)).status == 200

    run_with(database_url, way)
    assert quarantine_row(database_url)["last_fault_at"] is None


def test_a_slot_under_test_is_not_returned_by_any_door(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await fault(context, database_url, node)
        await quarantine_slot(context, admin_operation(), ADMIN, node, 2, reason="noise", evidence=None)
        await ask(context, node)
        await issue(context, node)
        for slot in (2, 6):
            refused = await return_(context, node, slot, without_burn_in=True)
            assert (refusal_of(refused), body_of(refused)["state"]) == ((409, "invalid_state"), "burn_in")
        await answer(context, database_url, node, FailureCode.DRIVER_ERROR)
        for slot in (2, 6):
            assert (await return_(context, node, slot, without_burn_in=True)).status == 200, "it locks no slot out"

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []


def test_automatic_returns_what_it_tested_and_a_fault_took_out(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        can_burn_in(database_url)
        await quarantine_slot(context, admin_operation(), ADMIN, node, 2, reason="noise", evidence=None)
        found = health(disks=[disk(passed=False)])
        assert await probe(context, database_url, node, found) is Taken.QUARANTINED
        assert await burn(context, database_url, node, FAULTY, policy=AUTOMATIC) is Advanced.FAULTY
        assert len(slots_out_of_service(database_url)) == 8
        assert await burn(context, database_url, node, policy=AUTOMATIC) is Advanced.RETURNED
        assert slots_out_of_service(database_url) == [2], "an operator's word ends an operator's quarantine"
        assert row_of(database_url, "select next_at <= clock_timestamp() as due from node_health")["due"]
        assert await probe(context, database_url, node, found) is Taken.QUARANTINED, "a fault that is still there"

    run_with(database_url, way)
    events = [row[0] for row in rows_of(database_url, RETURNS)]
    assert [event["slot"] for event in events] == [0, 1, 3, 4, 5, 6, 7]
    assert {event["note"] for event in events} == {"its burn-in passed"}
    assert len(rows_of(database_url, "select from audit where action = 'node.slot_return'")) == 7
    assert kept(database_url) == []


def test_a_return_and_a_fault_at_once_end_in_one_order(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await fault(context, database_url, node)
        await ask(context, node, 6)
        await issue(context, node)
        task = burn_in_task(database_url)
        await report(context, task, completed(task, burned_in().model_dump(mode="json")))
        with connect(database_url) as connection:
            connection.execute("update node_health set next_at = clock_timestamp()")
        assert await issue_probe(context, node, HOUR_SECONDS) is not None
        task = probe_task(database_url)
        await report(context, task, completed(task, result_of(health(xid(6, count=7)))))
        advanced, taken = await asyncio.gather(
            advance_burn_in(context, node, AUTOMATIC), take_probe(context, node, POLICY)
        )
        assert taken is Taken.FAULTY
        if advanced is Advanced.PASSED:  # the fault was first
            assert slots_out_of_service(database_url) == [6]
        else:
            assert advanced is Advanced.RETURNED
            assert await probe(context, database_url, node, health(xid(6, count=7))) is Taken.QUARANTINED
            assert slots_out_of_service(database_url) == [6]

    run_with(database_url, way, pool_size=8)
    assert kept(database_url) == []


def test_a_drift_keeps_a_slot_out_after_its_burn_in(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await fault(context, database_url, node)
        with connect(database_url) as connection:
            connection.execute("update node_topologies set drifted_slots = '{6}', drifted_since = now()")
        assert await burn(context, database_url, node, slot=6, policy=AUTOMATIC) is Advanced.RETURNED

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == [6]


def test_health_shows_the_last_burn_in(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[str | None]:
        await fault(context, database_url, node)
        seen = []
        for found in (FAULTY, burned_in()):
            await burn(context, database_url, node, found, slot=6)
            _, last = await find_health(context.database, node)
            seen.append(last.outcome if last else None)
        return seen

    assert run_with(database_url, way) == ["faulty", "passed"]


def test_a_state_that_comes_back_is_another_fault(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    failed = health(gpu(1, remap_failed=True))

    async def way(context: Context) -> None:
        await find_gpus(context, database_url, node)
        can_burn_in(database_url)
        assert await probe(context, database_url, node, failed) is Taken.QUARANTINED
        assert await probe(context, database_url, node, health()) is Taken.HEALTHY
        assert await burn(context, database_url, node, slot=1) is Advanced.PASSED
        assert await probe(context, database_url, node, failed) is Taken.FAULTY
        assert refusal_of(await return_(context, node, 1)) == REQUIRED

    run_with(database_url, way)
