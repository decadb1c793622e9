"""What nodes report: only the newest fence's live task of that very node counts (P7, P8, P10)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from node_agent.protocol import FailureCode, Phase, ProgressReport, ResultReport, TaskFailure
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.task_results import accept_task_result, record_task_progress
from orchestrator.allocations.outcomes import Concluded, Superseded
from orchestrator.allocations.store.timeline import PROGRESS_PER_TASK_MAX
from orchestrator.operations.execution import Context
from orchestrator.problems import Invalid, NotFound, TooLarge
from tests.allocations.driving import (
    PROVISIONED,
    WIPED,
    allocation_of,
    claim_of,
    completed,
    events_of,
    failed,
    provision,
    release,
    report,
    rows_of,
    run_with,
    task_of,
)
from tests.allocations.invariants import violations
from tests.allocations.seeding import create_allocation, seed


def test_a_task_of_another_node_is_unknown(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=2)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        other = next(node.id for node in seeded.nodes if node.id != task["node_id"])
        progress = ProgressReport(fence=task["fence"], phases=[Phase(phase="boot")])
        with pytest.raises(NotFound):
            await accept_task_result(context, other, 1, task["id"], completed(task, PROVISIONED))
        with pytest.raises(NotFound):
            await record_task_progress(context, other, task["id"], progress)
        with pytest.raises(NotFound):
            await accept_task_result(context, task["node_id"], 1, uuid.uuid4(), completed(task, PROVISIONED))
        assert await record_task_progress(context, task["node_id"], task["id"], progress)

    run_with(database_url, way)
    assert task_of(database_url, allocation_id)["state"] == "queued"


def test_the_first_report_counts_and_its_repetition_is_known(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        assert (await report(context, task, completed(task, PROVISIONED))).applied
        again = await report(context, task, completed(task, PROVISIONED))
        contrary = await report(context, task, failed(task))
        assert (again.applied, again.reason) == (False, "already_applied")
        assert (contrary.applied, contrary.reason) == (False, "already_applied")

    run_with(database_url, way)
    assert task_of(database_url, allocation_id)["state"] == "completed"
    assert events_of(database_url, allocation_id).count("task.finished") == 1


def test_another_fence_or_epoch_changes_nothing(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        older = completed({**task, "fence": task["fence"] - 1}, PROVISIONED)
        assert (await report(context, task, older)).reason == "superseded"
        enrolled_anew = {**task, "node_epoch": task["node_epoch"] + 1}
        assert (await report(context, enrolled_anew, completed(task, PROVISIONED))).reason == "superseded"

    run_with(database_url, way)
    assert task_of(database_url, allocation_id)["state"] == "queued"


def test_a_late_result_after_cancel_is_noted_once_and_changes_nothing(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        await release(context, seeded, allocation_id)
        before = allocation_of(database_url, allocation_id)
        for _ in range(3):
            answer = await report(context, task, completed(task, PROVISIONED))
            assert (answer.applied, answer.reason) == (False, "superseded")
        progress = ProgressReport(fence=task["fence"], phases=[Phase(phase="boot")])
        assert not await record_task_progress(context, task["node_id"], task["id"], progress)
        assert isinstance(await finish_provisioning(context, allocation_id), Superseded)
        assert allocation_of(database_url, allocation_id) == before

    run_with(database_url, way)
    notes = rows_of(database_url, "select fence from allocation_timeline where code = 'late_result'")
    assert len(notes) == 1
    assert notes[0][0] < claim_of(database_url, allocation_id)["fence"]
    assert violations(database_url) == []


def test_a_late_wipe_of_an_older_attempt_frees_nothing(database_url: str) -> None:
    """The older attempt's proof says nothing about what happened since its fence was overtaken."""
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await provision(context, database_url, allocation_id)
        await release(context, seeded, allocation_id)
        await begin_release(context, allocation_id, "first")
        older = task_of(database_url, allocation_id)
        await begin_release(context, allocation_id, "second")
        assert (await report(context, older, completed(older, WIPED))).reason == "superseded"
        assert isinstance(await finish_release(context, allocation_id, "first"), Superseded)
        newer = task_of(database_url, allocation_id)
        assert newer["fence"] > older["fence"]
        assert (await report(context, newer, completed(newer, WIPED))).applied
        assert isinstance(await finish_release(context, allocation_id, "second"), Concluded)

    run_with(database_url, way)
    assert allocation_of(database_url, allocation_id)["state"] == "released"
    assert violations(database_url) == []


@pytest.mark.parametrize(
    ("outcome", "result", "failure", "problem"),
    [
        ("completed", None, None, Invalid),
        ("completed", PROVISIONED, "driver_error", Invalid),
        ("failed", PROVISIONED, None, Invalid),
        ("failed", None, None, Invalid),
        ("completed", {"connection": {"host": "h"}, "image_sha256": "x"}, None, Invalid),
        ("completed", WIPED, None, Invalid),
        ("completed", {**PROVISIONED, "evidence": {"log": "x" * 70_000}}, None, TooLarge),
    ],
)
def test_a_report_that_does_not_fit_is_refused(
    database_url: str, outcome: Any, result: Any, failure: str | None, problem: type[Exception]
) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        told = None if failure is None else TaskFailure(code=FailureCode(failure), detail="d")
        with pytest.raises(problem):
            await report(context, task, ResultReport(fence=task["fence"], outcome=outcome, result=result, failure=told))

    run_with(database_url, way)
    assert task_of(database_url, allocation_id)["state"] == "queued"


def test_released_without_wipe_is_a_contradiction(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await release(context, seeded, allocation_id)
        await begin_release(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        for missing in ("wiped", "leases_released"):
            with pytest.raises(Invalid):
                await report(context, task, completed(task, {**WIPED, missing: False}))

    run_with(database_url, way)
    assert claim_of(database_url, allocation_id)["occupied"] is True


def test_progress_is_bounded(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> list[bool]:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        report_ = ProgressReport(fence=task["fence"], phases=[Phase(phase="image", detail="still loading")])
        return [
            await record_task_progress(context, task["node_id"], task["id"], report_)
            for _ in range(PROGRESS_PER_TASK_MAX + 2)
        ]

    assert run_with(database_url, way) == [True] * PROGRESS_PER_TASK_MAX + [False] * 2
