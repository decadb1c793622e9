"""Units are free only on proof or on an admin's word (P6); pauses are stored waits (P9); metered time never reopens."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from node_agent.protocol import FailureCode
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.force import force_cleanup, force_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.outcomes import Begun, Concluded, Retry, Superseded
from orchestrator.allocations.states import AllocationState
from orchestrator.database.census import take_census
from orchestrator.nodes.commands.nodes import retire_node
from orchestrator.nodes.queries import find_node
from orchestrator.nodes.states import SlotState
from orchestrator.operations.execution import Context, Limits
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import (
    ADMIN,
    WIPED,
    allocation_of,
    claim_of,
    clean_up,
    completed,
    events_of,
    failed,
    operation,
    provision,
    release,
    report,
    row_of,
    rows_of,
    run_with,
    task_of,
    transitions_of,
)
from tests.allocations.invariants import violations
from tests.allocations.seeding import Seeded, connect, create_allocation, seed
from tests.support.stuck_releases import ONCE, stuck_failure


async def stuck_release(context: Context, url: str, seeded: Seeded, allocation_id: uuid.UUID) -> None:
    """-> release_failed."""
    await provision(context, url, allocation_id)
    await release(context, seeded, allocation_id)
    await begin_release(context, allocation_id, "wf")
    task = task_of(url, allocation_id)
    await report(context, task, failed(task, FailureCode.CLEANUP_FAILED))
    assert isinstance(await finish_release(context, allocation_id, "wf"), Concluded)


async def say_clean(context: Context, seeded: Seeded, allocation_id: uuid.UUID, key: str | None = None) -> Answer:
    """An admin's word."""
    return await force_cleanup(context, operation(seeded, key), ADMIN, allocation_id, "the node was scrapped")


def slots(node: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(slot["state"], slot["code"]) for slot in node["slots"]]


def test_slots_say_what_blocks_them_until_cleanup_is_proven(database_url: str) -> None:
    seeded = seed(database_url)
    node_id = seeded.nodes[0].id
    lost, stuck, live = (create_allocation(database_url, seeded) for _ in range(3))

    async def way(context: Context) -> None:
        await stuck_failure(context, database_url, lost)
        await stuck_release(context, database_url, seeded, stuck)
        await provision(context, database_url, live)
        node = await find_node(context.database, node_id)
        found = slots(node)
        assert found.count(("cleanup_blocked", "cleanup_exhausted")) == 1
        assert found.count(("cleanup_blocked", "release_exhausted")) == 1
        assert found.count(("allocated", None)) == 1
        assert found.count(("free", None)) == 5
        assert node["cleanup_blocked_slots"] == 2
        holders = {slot["holder"] for slot in node["slots"] if slot["state"] == "cleanup_blocked"}
        assert holders == {lost, stuck}
        census = await take_census(context.database)
        assert sum(census.gpus["north", "H200", "gpu_slice"].values()) == 8
        assert census.gpus["north", "H200", "gpu_slice"] == {
            SlotState.FREE: 5, SlotState.HELD: 0, SlotState.ALLOCATED: 1, SlotState.CLEANUP_BLOCKED: 2,
            SlotState.OUT_OF_SERVICE: 0,
        }  # fmt: skip
        with connect(database_url) as connection:
            connection.execute("update nodes set online = false")
        assert [state for state, _ in slots(await find_node(context.database, node_id))].count("out_of_service") == 5
        assert (await take_census(context.database)).gpus["north", "H200", "gpu_slice"][SlotState.OUT_OF_SERVICE] == 5
        for allocation_id in (lost, stuck):
            await force_release(context, operation(seeded), ADMIN, allocation_id, "the disk was replaced")
            await clean_up(context, database_url, allocation_id)
        assert (await find_node(context.database, node_id))["cleanup_blocked_slots"] == 0

    run_with(database_url, way, limits=ONCE)
    told = row_of(database_url, "select payload, tenant_id from outbox where event_type = 'node.cleanup_blocked'")
    assert told["tenant_id"] is None
    assert (told["payload"]["allocation_id"], told["payload"]["code"]) == (str(lost), "cleanup_exhausted")
    assert violations(database_url) == []


def test_force_release_begins_the_cleanup_anew_under_a_new_fence(database_url: str) -> None:
    seeded = seed(database_url)
    stuck = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await stuck_release(context, database_url, seeded, stuck)
        before = allocation_of(database_url, stuck)
        old = task_of(database_url, stuck)
        fence = claim_of(database_url, stuck)["fence"]
        await force_release(context, operation(seeded), ADMIN, stuck, "again")
        assert claim_of(database_url, stuck)["fence"] > fence
        assert allocation_of(database_url, stuck)["release_attempts"] == 0
        late = await report(context, old, completed(old, WIPED))
        assert late.applied is False
        assert allocation_of(database_url, stuck)["state"] == "releasing", (
            "a late proof of an old attempt frees nothing"
        )
        await clean_up(context, database_url, stuck)
        after = allocation_of(database_url, stuck)
        assert (after["state"], after["releasing_at"]) == ("released", before["releasing_at"])

    run_with(database_url, way, limits=ONCE)
    assert violations(database_url) == []


def test_an_admins_word_ends_a_stuck_release_and_metered_time_stays(database_url: str) -> None:
    seeded = seed(database_url)
    stuck, running = (create_allocation(database_url, seeded) for _ in range(2))

    async def way(context: Context) -> None:
        await stuck_release(context, database_url, seeded, stuck)
        await provision(context, database_url, running)
        await release(context, seeded, running)
        await begin_release(context, running, "wf")
        for allocation_id in (stuck, running):
            before, fence = allocation_of(database_url, allocation_id), claim_of(database_url, allocation_id)["fence"]
            answer = await say_clean(context, seeded, allocation_id, f"word-{allocation_id}")
            assert answer.status == 200
            assert (await say_clean(context, seeded, allocation_id, f"word-{allocation_id}")).replayed
            after = allocation_of(database_url, allocation_id)
            assert after["state"] == "released"
            assert (after["active_at"], after["releasing_at"]) == (before["active_at"], before["releasing_at"])
            assert after["release_result"]["evidence"]["by"] == "admin"
            claim = claim_of(database_url, allocation_id)
            assert claim["fence"] > fence
            assert claim["closed_at"] is not None
            late = task_of(database_url, allocation_id)
            assert (await report(context, late, completed(late, WIPED))).applied is False
            assert isinstance(await finish_release(context, allocation_id, "wf"), Concluded)
        assert task_of(database_url, running)["state"] == "superseded"

    run_with(database_url, way, limits=ONCE)
    assert transitions_of(database_url, stuck)[-3:] == ["release_failed", "releasing", "released"]
    assert transitions_of(database_url, running)[-2:] == ["releasing", "released"]
    assert events_of(database_url, stuck)[-1] == "provisioning.releasing.completed"
    payload = row_of(
        database_url,
        "select payload from outbox where event_type = 'provisioning.releasing.completed' and subject = %s",
        f"allocations/{stuck}",
    )["payload"]
    assert (payload["by"], payload["evidence"]["runtime_verified_absent"]) == ("admin", True)
    audited = rows_of(database_url, "select action, detail ->> 'reason' from audit where action <> 'unknown'")
    assert audited == [("allocation.force_cleanup", "the node was scrapped")] * 2
    assert violations(database_url) == []
    create_allocation(database_url, seeded, gpus=8)


def test_an_admins_word_frees_the_units_of_a_failed_allocation(database_url: str) -> None:
    seeded = seed(database_url)
    lost = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await stuck_failure(context, database_url, lost)
        assert (await say_clean(context, seeded, lost)).status == 200
        assert (await say_clean(context, seeded, lost)).status == 409, "there is nothing left to clean up"
        assert await begin_release(context, lost, "another") == Superseded(AllocationState.FAILED)

    run_with(database_url, way, limits=ONCE)
    assert allocation_of(database_url, lost)["state"] == "failed"
    assert claim_of(database_url, lost)["closed_at"] is not None
    notes = rows_of(database_url, "select code, actor_kind from allocation_timeline where kind = 'note' order by id")
    assert notes[-1] == ("force_cleanup", "admin")
    assert len(rows_of(database_url, "select from audit where action = 'allocation.force_cleanup'")) == 1
    assert violations(database_url) == []


@pytest.mark.parametrize("state", ["requested", "provisioning", "active", "released"])
def test_an_admins_word_is_not_taken_where_something_may_run(database_url: str, state: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        if state == "provisioning":
            await begin_provisioning(context, allocation_id, "wf")
        if state in ("active", "released"):
            await provision(context, database_url, allocation_id)
        if state == "released":
            await release(context, seeded, allocation_id)
            await clean_up(context, database_url, allocation_id)
        before = allocation_of(database_url, allocation_id), claim_of(database_url, allocation_id)
        answer = await say_clean(context, seeded, allocation_id)
        assert (answer.status, '"invalid_state"' in answer.body) == (409, True)
        assert (allocation_of(database_url, allocation_id), claim_of(database_url, allocation_id)) == before

    run_with(database_url, way)
    assert allocation_of(database_url, allocation_id)["state"] == state
    assert rows_of(database_url, "select from audit where action = 'allocation.force_cleanup'") == []


def test_a_node_is_retired_only_when_nothing_holds_it_and_keeps_its_history(database_url: str) -> None:
    seeded = seed(database_url)
    node_id = seeded.nodes[0].id
    stuck = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await stuck_release(context, database_url, seeded, stuck)
        refused = await retire_node(context, operation(seeded), ADMIN, node_id, reason="burnt")
        assert refused.status == 409
        assert f'"{stuck}"' in refused.body
        assert "force-cleanup" in refused.body
        assert row_of(database_url, "select state from nodes")["state"] == "active"
        await say_clean(context, seeded, stuck)
        for _ in range(2):
            answer = await retire_node(context, operation(seeded), ADMIN, node_id, reason="burnt")
            assert answer.status == 200
        node = await find_node(context.database, node_id)
        assert (node["state"], node["online"]) == ("retired", False)
        assert slots(node) == [("out_of_service", None)] * 8
        assert (await take_census(context.database)).gpus == {}

    run_with(database_url, way, limits=ONCE)
    assert len(rows_of(database_url, "select from outbox where event_type = 'node.retired'")) == 1
    assert allocation_of(database_url, stuck)["node_id"] == node_id
    with pytest.raises(AssertionError):
        create_allocation(database_url, seeded)


def test_pauses_between_attempts_grow_and_are_stored_as_the_wait(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)
    limits = Limits(
        provision_attempts_max=4, provision_retry_first_seconds=5, provision_retry_seconds_max=12,
        provision_seconds_max=600,
    )  # fmt: skip

    async def way(context: Context) -> list[float]:
        pauses = []
        assert isinstance(await begin_provisioning(context, allocation_id, "wf"), Begun)
        until = allocation_of(database_url, allocation_id)["provision_until"]
        for _ in range(3):
            task = task_of(database_url, allocation_id)
            await report(context, task, failed(task, FailureCode.LEASE_CONFLICT))
            outcome = await finish_provisioning(context, allocation_id)
            assert isinstance(outcome, Retry)
            row = allocation_of(database_url, allocation_id)
            assert (row["state"], row["waits_for"]) == ("provisioning", "retry")
            pauses.append((row["waits_until"] - row["waits_since"]).total_seconds())
            again = await finish_provisioning(context, allocation_id)
            assert isinstance(again, Retry), "a repeated call returns the remaining wait, and changes nothing"
            assert again.after_seconds < outcome.after_seconds
            assert allocation_of(database_url, allocation_id) == row
            assert isinstance(await begin_provisioning(context, allocation_id, "wf"), Begun)
            row = allocation_of(database_url, allocation_id)
            assert (row["waits_for"], row["provision_until"]) == ("node", until)
            assert row["waits_until"] == until, "no attempt reaches beyond the deadline of the whole"
        task = task_of(database_url, allocation_id)
        await report(context, task, failed(task, FailureCode.LEASE_CONFLICT))
        last = await finish_provisioning(context, allocation_id)
        assert last == Concluded(AllocationState.FAILED, code="lease_conflict", cleanup=True)
        return pauses

    assert run_with(database_url, way, limits=limits) == [5, 10, 12]
    assert violations(database_url) == []


def test_a_pause_is_cut_at_the_deadline_of_the_whole(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        await report(context, task, failed(task, FailureCode.LEASE_CONFLICT))
        while isinstance(outcome := await finish_provisioning(context, allocation_id), Retry):
            assert outcome.after_seconds <= 0.3
        assert outcome == Concluded(AllocationState.FAILED, code="lease_conflict", cleanup=True)

    run_with(database_url, way, limits=Limits(provision_seconds_max=0.3, provision_retry_first_seconds=60))


@pytest.mark.parametrize(("online", "code"), [(True, "agent_silent"), (False, "node_offline")])
def test_silence_is_distinguished_from_absence(database_url: str, online: bool, code: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        with connect(database_url) as connection:
            connection.execute("update nodes set online = %s", (online,))
            connection.execute("update node_tasks set expires_at = clock_timestamp()")
        assert await finish_provisioning(context, allocation_id) == Concluded(
            AllocationState.FAILED, code=code, cleanup=True
        )

    run_with(database_url, way)
    told = row_of(database_url, "select payload from outbox where event_type = 'provisioning.failed'")["payload"]
    assert told["code"] == code
    assert told["next_step"]


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param([{"device": "nvme0", "proven": True}, {"device": "gpu0", "proven": False}], id="one-not-proven"),
        pytest.param([{"device": "nvme0"}], id="without-a-verdict"),
        pytest.param([{"device": "nvme0", "proven": "true"}], id="verdict-is-a-string"),
        pytest.param(["nvme0"], id="only-a-name"),
        pytest.param({"nvme0": {"proven": True}}, id="not-a-list"),
        pytest.param(None, id="null"),
    ],
)
def test_a_partial_wipe_keeps_the_units_occupied(database_url: str, devices: Any) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await provision(context, database_url, allocation_id)
        await release(context, seeded, allocation_id)
        await begin_release(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        await report(context, task, completed(task, {**WIPED, "evidence": {"devices": devices}}))
        assert isinstance(await finish_release(context, allocation_id, "wf"), Concluded)

    run_with(database_url, way, limits=ONCE)
    assert allocation_of(database_url, allocation_id)["state"] == "release_failed"
    assert claim_of(database_url, allocation_id)["occupied"] is True


def test_proof_of_each_device_frees_the_units(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)
    devices = [{"device": "nvme0", "proven": True}, {"device": "gpu0", "proven": True}]

    async def way(context: Context) -> None:
        await provision(context, database_url, allocation_id)
        await release(context, seeded, allocation_id)
        await begin_release(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        await report(context, task, completed(task, {**WIPED, "evidence": {"devices": devices}}))
        await finish_release(context, allocation_id, "wf")

    run_with(database_url, way, limits=ONCE)
    assert allocation_of(database_url, allocation_id)["state"] == "released"
    assert claim_of(database_url, allocation_id)["occupied"] is False
