"""A signed report of a wipe that this version's medium has sent is taken for what it is, also by a version that knows more.

`recorded_report.json` pins what a medium of this version signs: it is not made again when the code changes. It was written by
`MachineSigner`, about two disks, UEFI variables, firmware and a gap.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node_agent.protocol import TaskType
from node_agent.wire.deploy_enrolment import DeployResultReport
from node_agent.wire.deploy_tasks import FirmwareVersion, MetalDiskWipe, MetalWipeReport
from orchestrator.nodes.deploy_systems.task_store import SignedTask
from orchestrator.nodes.deploy_systems.wipe_statements import SigningMachine
from orchestrator.tasks.states import TaskState

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded_report.json").read_text())
REPORT = DeployResultReport.model_validate(RECORDED["report"])
MACHINE = SigningMachine(UUID(RECORDED["node_id"]), RECORDED["deploy_epoch"], UUID(RECORDED["task_id"]))
TASK = SignedTask(
    type=TaskType.METAL_WIPE, fence=REPORT.fence, state=TaskState.DISPATCHED, parameters=RECORDED["parameters"],
    node_epoch=RECORDED["node_epoch"], certificate_pem=RECORDED["certificate_pem"], released=UUID(RECORDED["released"]),
)  # fmt: skip


class LaterDisk(MetalDiskWipe):
    """With a member that media of this version do not send."""

    passes: int = 1


class LaterFirmware(FirmwareVersion):
    """With a member that media of this version do not send."""

    signed_by: str = "unknown"


class LaterReport(MetalWipeReport):
    """With members that media of this version do not send."""

    disks: list[LaterDisk]  # type: ignore[assignment]
    firmware: list[LaterFirmware] | None = None  # type: ignore[assignment]
    sanitized_bytes: int = 0


@pytest.mark.parametrize("known", [MetalWipeReport, LaterReport])
def test_a_recorded_report_is_taken_with_its_statement(known: type[MetalWipeReport]) -> None:
    assert MACHINE.objection(TASK, known.model_validate(REPORT.result), REPORT) is None


def test_a_report_that_was_changed_on_its_way_is_not() -> None:
    assert REPORT.result is not None
    changed = REPORT.model_copy(update={"result": {**REPORT.result, "seconds": 1.0}})
    objection = MACHINE.objection(TASK, MetalWipeReport.model_validate(changed.result), changed)
    assert objection is not None
    assert objection.reason == "other_disks"
