"""The way of one allocation through every command, both shapes, and what it leaves behind (DESIGN §4)."""

from __future__ import annotations

import base64
import json

import pytest

from node_agent.protocol import FailureCode, TaskBody
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.force import force_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.waits import fail_unstarted
from orchestrator.allocations.outcomes import Begun, Concluded, Retry, Superseded, Waiting
from orchestrator.allocations.states import AllocationState
from orchestrator.operations.execution import Context, Limits
from tests.allocations.driving import (
    ADMIN,
    NOT_WIPED,
    PROVISIONED,
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
from tests.allocations.seeding import create_allocation, seed


@pytest.mark.parametrize(
    ("shape", "types"),
    [
        ("gpu_slice", ["slice.vm_provision", "slice.vm_release"]),
        ("baremetal", ["allocation.provision_user", "allocation.deprovision_user"]),
    ],
)
def test_from_requested_to_released(database_url: str, shape: str, types: list[str]) -> None:
    seeded = seed(database_url, slice_nodes=1, metal_nodes=1)
    allocation_id = create_allocation(database_url, seeded, shape=shape, gpus=2)
    gpus = allocation_of(database_url, allocation_id)["gpus"]

    async def way(context: Context) -> None:
        await provision(context, database_url, allocation_id)
        active = allocation_of(database_url, allocation_id)
        assert (active["state"], active["waits_for"]) == ("active", "tenant")
        assert active["connection"]["port"] == 2222
        answer = await release(context, seeded, allocation_id)
        assert answer.status == 202
        body = json.loads(answer.body)
        assert (body["status"], body["waits"]["for"], len(body["slots"])) == ("releasing", "worker", gpus)
        await clean_up(context, database_url, allocation_id)

    run_with(database_url, way)
    released = allocation_of(database_url, allocation_id)
    assert released["requested_at"] < released["active_at"] < released["releasing_at"] < released["released_at"]
    assert released["release_result"]["wiped"] is True
    assert transitions_of(database_url, allocation_id) == [
        "requested",
        "provisioning",
        "active",
        "releasing",
        "released",
    ]
    assert events_of(database_url, allocation_id) == [
        "provisioning.requested",
        "task.finished",
        "provisioning.active",
        "provisioning.releasing.requested",
        "task.finished",
        "provisioning.releasing.completed",
    ]
    tasks = rows_of(database_url, "select type, state from node_tasks order by fence")
    assert tasks == [(types[0], "completed"), (types[1], "completed")]
    claim = claim_of(database_url, allocation_id)
    assert claim["closed_at"] is not None
    assert claim["occupied_until"] >= released["releasing_at"]
    assert row_of(database_url, "select gpus_used from tenant_quotas")["gpus_used"] == 0
    assert violations(database_url) == []


def test_the_signed_task_says_what_the_row_says(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded, gpus=2)

    async def begin(context: Context) -> None:
        first = await begin_provisioning(context, allocation_id, "wf")
        again = await begin_provisioning(context, allocation_id, "wf")
        assert isinstance(first, Begun)
        assert isinstance(again, Begun)
        assert (again.task_id, again.repeated, first.repeated) == (first.task_id, True, False)
        assert isinstance(await finish_provisioning(context, allocation_id), Waiting)

    run_with(database_url, begin)
    task = task_of(database_url, allocation_id)
    body = TaskBody.model_validate_json(base64.b64decode(task["envelope"]["payload"]))
    assert (body.task_id, body.node_id, body.fence, body.node_epoch) == (
        task["id"],
        task["node_id"],
        claim_of(database_url, allocation_id)["fence"],
        1,
    )
    assert body.parameters["slots"] == [0, 1]
    assert body.expires_at == task["expires_at"]
    told = allocation_of(database_url, allocation_id)
    assert told["waits_until"] == told["provision_until"] == task["expires_at"], (
        "the published deadline is the enforced one"
    )


def test_failure_keeps_units_until_cleanup_is_proven(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded, gpus=8)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        await report(context, task, failed(task, FailureCode.IMAGE_CHECKSUM_MISMATCH))
        outcome = await finish_provisioning(context, allocation_id)
        assert outcome == Concluded(AllocationState.FAILED, code="image_checksum_mismatch", cleanup=True)

    run_with(database_url, way)
    row = allocation_of(database_url, allocation_id)
    assert (row["state"], row["failure_code"], row["waits_for"]) == ("failed", "image_checksum_mismatch", None)
    claim = claim_of(database_url, allocation_id)
    assert (claim["booked"], claim["occupied"], claim["waits_for"]) == (False, True, "cleanup")
    assert claim["waits_until"] is not None
    assert row_of(database_url, "select gpus_used from tenant_quotas")["gpus_used"] == 0
    assert row_of(database_url, "select free_mask from nodes")["free_mask"] == 0
    assert violations(database_url) == []

    run_with(database_url, lambda context: clean_up(context, database_url, allocation_id))
    assert claim_of(database_url, allocation_id)["closed_at"] is not None
    assert row_of(database_url, "select free_mask from nodes")["free_mask"] == 255
    assert allocation_of(database_url, allocation_id)["state"] == "failed"
    assert violations(database_url) == []


def test_a_lease_conflict_is_tried_again_under_a_new_fence(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> list[int]:
        fences = []
        for expected in (Retry, Retry, Concluded):
            await begin_provisioning(context, allocation_id, "wf")
            task = task_of(database_url, allocation_id)
            fences.append(task["fence"])
            await report(context, task, failed(task, FailureCode.LEASE_CONFLICT))
            assert isinstance(await finish_provisioning(context, allocation_id), expected)
        return fences

    fences = run_with(database_url, way)
    assert len(set(fences)) == 3
    assert fences == sorted(fences)
    assert allocation_of(database_url, allocation_id)["failure_code"] == "lease_conflict"


def test_an_exhausted_release_waits_for_an_operator_and_either_end_works(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def exhaust(context: Context, notify: str) -> None:
        for attempt in (1, 2, 3):
            assert isinstance(await begin_release(context, allocation_id, notify), Begun)
            task = task_of(database_url, allocation_id)
            told = completed(task, NOT_WIPED) if attempt % 2 else failed(task)
            await report(context, task, told)
            outcome = await finish_release(context, allocation_id, notify)
            if attempt < 3:
                assert isinstance(outcome, Retry)
                assert isinstance(await finish_release(context, allocation_id, notify), Retry)
        assert outcome == Concluded(AllocationState.RELEASE_FAILED, code="release_exhausted")

    async def way(context: Context) -> None:
        await provision(context, database_url, allocation_id)
        await release(context, seeded, allocation_id)
        await exhaust(context, "first")
        stuck = allocation_of(database_url, allocation_id)
        assert (stuck["state"], stuck["waits_for"], stuck["failure_code"]) == (
            "release_failed",
            "force_release",
            "release_exhausted",
        )
        assert claim_of(database_url, allocation_id)["occupied"] is True
        await release(context, seeded, allocation_id)
        await exhaust(context, "second")
        answer = await force_release(context, operation(seeded), ADMIN, allocation_id, "the disk was replaced")
        assert answer.status == 202
        await clean_up(context, database_url, allocation_id)

    run_with(database_url, way)
    row = allocation_of(database_url, allocation_id)
    assert row["state"] == "released"
    first_releasing = rows_of(
        database_url,
        "select at from allocation_timeline where allocation_id = %s and to_state = 'releasing' order by id limit 1",
        allocation_id,
    )
    assert row["releasing_at"] == first_releasing[0][0], "metered time never reopens"
    assert events_of(database_url, allocation_id).count("provisioning.release_failed") == 2
    assert (
        row_of(database_url, "select action, detail from audit where action <> 'unknown'")["detail"]["reason"]
        == "the disk was replaced"
    )
    assert violations(database_url) == []


def test_exhausted_cleanup_after_a_failure_is_taken_up_by_force_release(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        await report(context, task, failed(task))
        await finish_provisioning(context, allocation_id)
        await begin_release(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        await report(context, task, failed(task))
        outcome = await finish_release(context, allocation_id, "wf")
        assert outcome == Concluded(AllocationState.FAILED, code="cleanup_exhausted")
        assert claim_of(database_url, allocation_id)["waits_for"] == "operator"
        assert isinstance(await begin_release(context, allocation_id, "another"), Superseded)
        await force_release(context, operation(seeded), ADMIN, allocation_id, "again")
        await clean_up(context, database_url, allocation_id)

    run_with(database_url, way, limits=Limits(release_attempts_max=1))
    assert claim_of(database_url, allocation_id)["closed_at"] is not None
    assert events_of(database_url, allocation_id).count("provisioning.releasing.requested") == 1
    assert violations(database_url) == []


def test_a_task_past_its_time_is_expired(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        while isinstance(outcome := await finish_provisioning(context, allocation_id), Waiting):
            assert outcome.seconds <= 0.05
        assert outcome == Concluded(AllocationState.FAILED, code="agent_silent", cleanup=True)
        late = task_of(database_url, allocation_id)
        answer = await report(context, late, completed(late, PROVISIONED))
        assert (answer.applied, answer.reason) == (False, "superseded")

    run_with(database_url, way, limits=Limits(provision_seconds_max=0.05))
    assert task_of(database_url, allocation_id)["state"] == "expired"
    assert allocation_of(database_url, allocation_id)["state"] == "failed"


def test_what_was_never_started_fails_and_is_cleaned(database_url: str) -> None:
    seeded = seed(database_url)
    waiting = create_allocation(database_url, seeded)
    overdue = create_allocation(database_url, seeded, start_seconds=-1)

    async def way(context: Context) -> None:
        assert await fail_unstarted(context, overdue)
        assert not await fail_unstarted(context, overdue)
        assert not await fail_unstarted(context, waiting)
        assert await begin_provisioning(context, overdue, "late") == Superseded(AllocationState.FAILED)
        await clean_up(context, database_url, overdue)

    run_with(database_url, way)
    assert allocation_of(database_url, overdue)["failure_code"] == "not_started"
    assert allocation_of(database_url, waiting)["state"] == "requested"
    assert claim_of(database_url, overdue)["closed_at"] is not None
    assert violations(database_url) == []


def test_wiped_units_are_placed_again(database_url: str) -> None:
    seeded = seed(database_url)
    first = create_allocation(database_url, seeded, gpus=8)

    async def way(context: Context) -> None:
        await provision(context, database_url, first)
        await release(context, seeded, first)
        await clean_up(context, database_url, first)

    run_with(database_url, way)
    assert WIPED["wiped"] is True
    second = create_allocation(database_url, seeded, gpus=8)
    assert claim_of(database_url, second)["units"] == claim_of(database_url, first)["units"]
    assert violations(database_url) == []
