"""The real agent process runs an operator's plugin once, reports what it did, and finds out what a reboot has ended."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

from node_agent.protocol import FailureCode, ResultReport, TaskType
from node_agent.wire.maintenance import MaintenancePluginReport
from tests.node_agent.agents import AgentProcess, Tenant, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane

ORDER = {"plugin": "firmware", "slots": [0, 1]}
SLOTS = 'os.environ["MAINTENANCE_SLOTS"]'
DONE = f'import json; print(json.dumps({{"outcome": "completed", "evidence": "BIOS 1.2 of slots " + {SLOTS}}}))'
WAIT = "signal.pause()"
DECLARE = 'pathlib.Path(os.environ["MAINTENANCE_REBOOT_FILE"]).write_text("BIOS 1.2 is staged")'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The node's folder of maintenance plugins."""
    path = tmp_path / "plugins"
    path.mkdir()
    return path


def install(folder: Path, *lines: str, name: str = "firmware", mode: int = 0o755) -> Path:
    """A plugin that counts its runs, and then does this."""
    path = folder / name
    begun = folder / "begun"
    counted = f'with open("{begun}", "a") as file: file.write("x")'
    path.write_text("\n".join((f"#!{sys.executable}", "import os, pathlib, signal", counted, *lines)) + "\n")
    path.chmod(mode)
    return path


def runs(folder: Path) -> int:
    """How often plugins have begun."""
    path = folder / "begun"
    return len(path.read_text()) if path.exists() else 0


def report_of(result: ResultReport) -> MaintenancePluginReport:
    assert result.outcome == "completed", result
    return MaintenancePluginReport.model_validate(result.result)


def plugins_of(folder: Path) -> list[int]:
    """Processes of the plugin that run."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder / "firmware") in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


async def run(plane: ControlPlane, **changed: Any) -> MaintenancePluginReport:
    task = await plane.hand_out(plane.body(TaskType.MAINTENANCE_PLUGIN, {**ORDER, **changed}))
    return report_of(await plane.result_of(task))


async def end_agent_meanwhile(plane: ControlPlane, agent: AgentProcess, folder: Path, expected: Path) -> uuid.UUID:
    """Hand out a task, and kill the agent as soon as this file is there."""
    task = await plane.hand_out(plane.body(TaskType.MAINTENANCE_PLUGIN, ORDER))
    await plane.until(lambda: expected.exists() and expected.read_bytes() != b"")
    agent.kill()
    await plane.until(lambda: plugins_of(folder) == [])
    return task


def test_a_plugin_runs_and_its_result_is_bounded(play: Play, folder: Path) -> None:
    install(folder, DONE)
    install(folder, 'print(\'{"outcome": "failed", "evidence": "\' + "x" * 5000 + \'"}\')', name="refusing")
    install(folder, 'print("x" * 100_000)', name="flooding")
    install(folder, "raise SystemExit(3)", name="broken")

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        done = await run(plane)
        assert (done.outcome, done.evidence, done.rebooted) == ("completed", "BIOS 1.2 of slots 0,1", False)
        refusing = await run(plane, plugin="refusing")
        assert (refusing.outcome, len(refusing.evidence)) == ("failed", 1000)
        assert (await run(plane, plugin="flooding")).evidence == "the answer is larger than 65536 bytes"
        assert (await run(plane, plugin="broken")).evidence == "the process exited with 3"
        assert "maintenance_plugin" in plane.heartbeats[-1].features

    play(scenario, BERTH_AGENT_MAINTENANCE_PLUGINS_DIR=str(folder))


def test_what_is_not_installed_or_not_safe_is_not_run(play: Play, folder: Path) -> None:
    install(folder, DONE, name="open", mode=0o757)

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        assert (await run(plane)).outcome == "plugin_unknown"
        assert (await run(plane, plugin="open")).outcome == "plugin_unsafe"
        install(folder, DONE)
        allocation = uuid.uuid4()
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([3]), allocation))
        assert (await plane.result_of(task)).outcome == "completed"
        assert (await run(plane)).outcome == "node_in_use"
        task = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([3]), allocation))
        assert (await plane.result_of(task)).outcome == "completed"
        assert runs(folder) == 0
        malformed: list[dict[str, Any]] = [{"plugin": "../firmware"}, {"plugin": ""}, {"slots": []}]
        for wrong in malformed:
            task = await plane.hand_out(plane.body(TaskType.MAINTENANCE_PLUGIN, {**ORDER, **wrong}))
            refused = (await plane.result_of(task)).failure
            assert refused is not None, wrong
            assert refused.code is FailureCode.TASK_REFUSED

    play(scenario, BERTH_AGENT_MAINTENANCE_PLUGINS_DIR=str(folder))


def test_an_agent_without_a_folder_names_no_feature(play: Play, folder: Path) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        assert (await run(plane)).outcome == "plugin_unknown"
        assert "maintenance_plugin" not in plane.heartbeats[-1].features

    play(scenario)


@pytest.mark.full
def test_a_killed_agent_ends_the_plugin_and_reports_it_interrupted(play: Play, folder: Path) -> None:
    install(folder, WAIT)

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        task = await end_agent_meanwhile(plane, agent, folder, folder / "begun")
        agent.start()
        failure = (await plane.result_of(task)).failure
        assert failure is not None
        assert failure.code is FailureCode.INTERRUPTED
        assert runs(folder) == 1, "it does not begin again by itself"

    play(scenario, BERTH_AGENT_MAINTENANCE_PLUGINS_DIR=str(folder))


@pytest.mark.quick("rebooted")
@pytest.mark.parametrize("rebooted", [True, False], ids=["rebooted", "same_boot"])
def test_a_declared_reboot_has_completed_if_the_boot_id_changed(play: Play, folder: Path, rebooted: bool) -> None:
    install(folder, DECLARE, WAIT)

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        notes = agent.state_dir / "maintenance"
        task = await plane.hand_out(plane.body(TaskType.MAINTENANCE_PLUGIN, ORDER))
        await plane.until(lambda: [*notes.glob("*.reboot")] != [] and next(notes.glob("*.reboot")).stat().st_size > 0)
        agent.kill()
        await plane.until(lambda: plugins_of(folder) == [])
        if rebooted:  # as after a boot: the note has the id of the boot before
            (notes / f"{task}.begun").write_text("00000000-0000-0000-0000-000000000000")
        agent.start()
        result = await plane.result_of(task)
        assert runs(folder) == 1
        if not rebooted:
            assert result.failure is not None
            assert result.failure.code is FailureCode.INTERRUPTED
            return
        report = report_of(result)
        assert (report.outcome, report.rebooted, report.evidence) == ("completed", True, "BIOS 1.2 is staged")

    play(scenario, BERTH_AGENT_MAINTENANCE_PLUGINS_DIR=str(folder))


@pytest.mark.full
def test_a_reboot_that_was_not_declared_is_an_interruption(play: Play, folder: Path) -> None:
    install(folder, WAIT)

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        task = await end_agent_meanwhile(plane, agent, folder, folder / "begun")
        (agent.state_dir / "maintenance" / f"{task}.begun").write_text("00000000-0000-0000-0000-000000000000")
        agent.start()
        failure = (await plane.result_of(task)).failure
        assert failure is not None
        assert failure.code is FailureCode.INTERRUPTED

    play(scenario, BERTH_AGENT_MAINTENANCE_PLUGINS_DIR=str(folder))
