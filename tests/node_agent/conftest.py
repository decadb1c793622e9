"""Fixtures: a scripted control plane, a tenant, agents that are ended with everything they started."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node_agent.drivers.sandbox.processes import start_ticks
from node_agent.drivers.sandbox.records import AllocationDirectory
from tests.node_agent.agents import AgentProcess, Tenant
from tests.node_agent.control_plane import ControlPlane

Scenario = Callable[[ControlPlane, AgentProcess, Tenant], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture
def tenant(tmp_path: Path) -> Tenant:
    """A tenant with a key and an image."""
    return Tenant(tmp_path)


@pytest.fixture
def play(tmp_path: Path, tenant: Tenant) -> Play:
    """Runs a scenario against a scripted control plane and one agent process, which is started with a fresh token unless
    `started=False`. Shows the agent's log when the scenario fails."""

    @asynccontextmanager
    async def stage(started: bool, environment: dict[str, str]) -> AsyncIterator[tuple[ControlPlane, AgentProcess]]:
        plane = ControlPlane(tmp_path)
        agent = AgentProcess(plane, tmp_path, **environment)
        async with plane.running():
            if started:
                agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
                await plane.until(lambda: plane.waits > 0)
            try:
                yield plane, agent
            except BaseException:
                sys.stderr.write(agent.log if agent.log_file.exists() else "no log")
                raise
            finally:
                if agent.process is not None and agent.process.poll() is None:
                    agent.kill()
                _end_guests(agent)

    def run(scenario: Scenario, started: bool = True, **environment: str) -> None:
        async def scene() -> None:
            async with stage(started, environment) as (plane, agent):
                await scenario(plane, agent, tenant)

        asyncio.run(scene())

    return run


def _end_guests(agent: AgentProcess) -> None:
    allocations = agent.sandbox / "allocations"
    for path in allocations.iterdir() if allocations.exists() else ():
        state = AllocationDirectory(path).guest_state()
        if state is not None and start_ticks(state.pid) == state.start_ticks:
            os.kill(state.pid, signal.SIGKILL)
