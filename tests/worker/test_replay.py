"""Recorded workflow histories replay: the current workflows can continue runs that an older worker started."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from tests.worker.save_histories import PAYLOAD_KEY
from worker.activities.messages import StepResult
from worker.app import sandbox
from worker.payloads import PayloadKeys, encrypting_converter
from worker.workflows.provisioning import ProvisioningWorkflow
from worker.workflows.release import ReleaseWorkflow
from worker.workflows.verb import VerbWorkflow

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def _history(path: Path) -> WorkflowHistory:
    saved = json.loads(path.read_text())
    return WorkflowHistory.from_json(saved["workflow_id"], saved["history"])


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_recorded_history_replays(path: Path) -> None:
    replayer = Replayer(
        workflows=[ProvisioningWorkflow, ReleaseWorkflow, VerbWorkflow], workflow_runner=sandbox(),
        data_converter=encrypting_converter(PayloadKeys([PAYLOAD_KEY], earlier_allowed=True)), namespace="default",
    )  # fmt: skip
    result = asyncio.run(replayer.replay_workflow(_history(path)))
    assert result.replay_failure is None


def test_histories_cover_every_workflow_and_repeated_attempts() -> None:
    texts = {path.stem: path.read_text() for path in HISTORIES}
    assert {"provisioning-1", "provisioning-2", "release-1", "verb-1"} <= set(texts)
    assert texts["release-1"].count('"signalName": "task_finished"') == 2, "a release with a second attempt"
    assert texts["provisioning-2"].count('"signalName": "task_finished"') == 3, (
        "two attempts to provision, one to clean"
    )


@workflow.defn(name="provisioning", sandboxed=False)
class ChangedWorkflow:
    """Begins with a timer that no recorded run has."""

    @workflow.run
    async def run(self, allocation_id: str) -> StepResult:
        await workflow.wait_condition(lambda: False, timeout=timedelta(seconds=5))
        return StepResult("superseded")


def test_an_incompatible_workflow_fails_replay() -> None:
    replayer = Replayer(workflows=[ChangedWorkflow])
    path = next(path for path in HISTORIES if path.stem == "provisioning-1")
    with pytest.raises(NondeterminismError):
        asyncio.run(replayer.replay_workflow(_history(path)))
