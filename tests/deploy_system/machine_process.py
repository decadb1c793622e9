"""`python -m tests.deploy_system.machine_process MEDIUM ROOT_KEYS DIRECTORY`: a deploy system on a machine made of files.

It runs the code of the real one but for the work: `performed` in the directory counts what was performed. The file
`hold` makes the work wait until it is gone, `fails` makes a rescue fail.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from node_agent.deploy_system.effects.contract import Host, Progress, ToolRun, WorkFailed
from node_agent.deploy_system.loop import DeploySettings
from node_agent.deploy_system.performing import Report, Work
from node_agent.deploy_system.process import run
from node_agent.protocol import TaskType
from node_agent.wire.deploy_tasks import DeployFailureCode, MetalInspectReport, MetalRescueReport, MetalWipeReport
from tests.deploy_system.ordering import WIPED
from tests.deploy_system.stage import INSPECTED
from tests.support.waiting import wait_for


def settings_of(medium: Path, root_keys: Path, directory: Path) -> DeploySettings:
    """The settings of the deploy system of the machine in this directory."""

    def note(parameters: Any) -> None:
        with (directory / "performed").open("a") as file:
            file.write(f"{type(parameters).__name__}\n")
        wait_for(lambda: not (directory / "hold").exists(), "the end of the hold")

    def inspect(host: Host, parameters: Any, progress: Progress) -> Report:
        note(parameters)
        progress("hardware", "read")
        return MetalInspectReport.model_validate(INSPECTED)

    def wipe(host: Host, parameters: Any, progress: Progress) -> Report:
        note(parameters)
        return MetalWipeReport.model_validate(WIPED)

    def deploy(host: Host, parameters: Any, progress: Progress) -> Report:
        note(parameters)
        raise WorkFailed(DeployFailureCode.READ_BACK_MISMATCH, "read_back", "byte 7", "replace the disk")

    def rescue(host: Host, parameters: Any, progress: Progress) -> Report:
        note(parameters)
        if (directory / "fails").exists():
            raise WorkFailed(DeployFailureCode.RESCUE_UNAVAILABLE, "rescue", "no server", "build a medium")
        return MetalRescueReport(host_key="ssh-ed25519 AAAA")

    work: dict[TaskType, Work] = {
        TaskType.METAL_INSPECT: inspect, TaskType.METAL_WIPE: wipe, TaskType.METAL_DEPLOY: deploy,
        TaskType.METAL_RESCUE: rescue,
    }  # fmt: skip
    host = Host(run=lambda command, timeout: ToolRun(127, ""), sys=directory / "sys", scratch=directory)
    return DeploySettings(
        medium=medium, root_keys_file=root_keys, host=host, bring_up=lambda host, network: None,
        work=lambda ca_pem: work, version="test", give_up_seconds=2.0, wait_seconds=1.0,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(run(settings_of(*map(Path, sys.argv[1:]))))
