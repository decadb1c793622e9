"""The real agent process burns its node in; killed meanwhile, it leaves no file and no process, and reports the failure."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from node_agent.protocol import FailureCode, ResultReport, TaskType
from node_agent.wire.burn_in import BurnInReport
from tests.node_agent.agents import AgentProcess, Tenant, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane

SMALL = {
    "BERTH_AGENT_BURN_IN_MEMORY_BYTES_MAX": str(16 * 2**20), "BERTH_AGENT_BURN_IN_DISK_BYTES_MAX": str(2**20),
    "BERTH_AGENT_BURN_IN_CPU_SECONDS": "0.05",
}  # fmt: skip
SLOW = {**SMALL, "BERTH_AGENT_BURN_IN_CPU_SECONDS": "600"}
ORDER = {"slots": [3], "gpus": [], "shared": False}


def report_of(result: ResultReport) -> BurnInReport:
    assert result.outcome == "completed", result
    return BurnInReport.model_validate(result.result)


def processes_of(agent: AgentProcess) -> list[int]:
    """Processes of a burn-in that name the directory of the agent, also after its end."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if "node_agent.burn_in" in line and str(agent.state_dir) in line and process.status() != "zombie":
                found.append(process.pid)
    return found


def open_unnamed_files(agent: AgentProcess) -> list[str]:
    """Files without a name below the state directory that some process has open."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            target = str(link.readlink())
            if target.startswith(str(agent.state_dir)) and target.endswith("(deleted)"):
                found.append(target)
    return found


def test_a_node_is_burned_in_and_heartbeats_name_the_feature(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        report = report_of(await plane.result_of(await plane.hand_out(plane.body(TaskType.BURN_IN, ORDER))))
        assert {part.name: part.verdict for part in report.parts} == dict.fromkeys(("memory", "disk", "cpu"), "healthy")
        assert (report.driver, report.shared) == ("sandbox", False)
        assert "burn_in" in plane.heartbeats[-1].features
        assert "burn_in_ended" in agent.log

    play(scenario, **SMALL)


@pytest.mark.full
def test_beside_an_allocation_the_bounds_are_smaller(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([2]), allocation))
        assert (await plane.result_of(task)).outcome == "completed"
        report = report_of(await plane.result_of(await plane.hand_out(plane.body(TaskType.BURN_IN, ORDER))))
        assert report.shared, "the agent sees the allocation, whatever the order says"
        task = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([2]), allocation))
        assert (await plane.result_of(task)).outcome == "completed"

    play(scenario, **SMALL)


@pytest.mark.full
def test_a_killed_agent_leaves_no_file_and_no_process_and_reports_it(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        task = await plane.hand_out(plane.body(TaskType.BURN_IN, ORDER))
        await plane.until(lambda: len(processes_of(agent)) > 1)
        agent.kill()
        await plane.until(lambda: processes_of(agent) == [])
        assert open_unnamed_files(agent) == []
        assert not list(agent.state_dir.glob("burn-in*"))
        (agent.state_dir / "burn-in.tmp").write_bytes(b"as a kill in between would leave it")
        agent.start()
        report = await plane.result_of(task)
        assert report.failure is not None
        assert (report.failure.code, report.failure.detail) == (
            FailureCode.INTERRUPTED, "the agent ended while this task ran",
        )  # fmt: skip
        assert processes_of(agent) == [], "it does not begin again by itself"
        assert not (agent.state_dir / "burn-in.tmp").exists()

    play(scenario, **SLOW)


@pytest.mark.full
def test_a_kill_while_the_file_is_written_leaves_none(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        await plane.hand_out(plane.body(TaskType.BURN_IN, ORDER))
        await plane.until(lambda: open_unnamed_files(agent) != [])
        agent.kill()
        await plane.until(lambda: open_unnamed_files(agent) == [] and processes_of(agent) == [])
        assert not list(agent.state_dir.glob("burn-in*"))

    play(scenario, **{**SLOW, "BERTH_AGENT_BURN_IN_DISK_BYTES_MAX": str(2**30)})


@pytest.mark.full
def test_an_orderly_stop_ends_a_burn_in(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        await plane.hand_out(plane.body(TaskType.BURN_IN, ORDER))
        await plane.until(lambda: len(processes_of(agent)) > 1)
        assert agent.process is not None
        os.kill(agent.process.pid, signal.SIGTERM)
        assert await agent.exit_status() == 0
        assert processes_of(agent) == []

    play(scenario, **SLOW)


@pytest.mark.full
def test_an_operators_plugin_fails_it(play: Play, tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    path = plugins / "fans"
    path.write_text(f'#!{sys.executable}\nprint(\'{{"verdict": "fault", "evidence": "fan 3 stopped"}}\')\n')
    path.chmod(0o755)

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        report = report_of(await plane.result_of(await plane.hand_out(plane.body(TaskType.BURN_IN, ORDER))))
        assert [(one.name, one.verdict, one.evidence) for one in report.plugins or ()] == [
            ("fans", "fault", "fan 3 stopped")
        ]

    play(scenario, **SMALL, BERTH_AGENT_BURN_IN_PLUGINS_DIR=str(plugins))


def test_orders_that_are_wrong_are_refused(play: Play) -> None:
    wrong: list[dict[str, Any]] = [
        {}, {**ORDER, "slots": []}, {**ORDER, "slots": [64]}, {**ORDER, "gpus": ["x"]}, {**ORDER, "shared": 1},
    ]  # fmt: skip

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        for order in wrong:
            report = await plane.result_of(await plane.hand_out(plane.body(TaskType.BURN_IN, order)))
            assert report.failure is not None, order
            assert report.failure.code is FailureCode.TASK_REFUSED

    play(scenario, **SMALL)
