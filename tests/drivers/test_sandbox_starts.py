"""The end of a guest that is heard late is not taken for the end of its successor."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from pathlib import Path

from node_agent.drivers.contract import ProvisionOrder
from node_agent.drivers.performing import Unheard, perform
from node_agent.protocol import ProvisionParameters
from node_agent.settings import Settings
from tests.drivers.processes_seen import living
from tests.drivers.sandbox_harness import SandboxHarness
from tests.drivers.stage import end_processes
from tests.support.waiting import async_wait_for, let_others_run


def launcher_of(state_dir: Path) -> int:
    """The process that starts the guests of this node: a child of this one, with the arguments that its forks keep."""
    lock = os.fsencode(state_dir / "sandbox" / "launcher.lock")
    shown = [pid for pid in living() if lock in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    (found,) = [pid for pid in shown if f"\nPPid:\t{os.getpid()}\n" in Path(f"/proc/{pid}/status").read_text()]
    return found


def test_the_end_of_the_guest_before_is_received_after_the_next_start(tmp_path: Path) -> None:
    harness, state_dir = SandboxHarness(), tmp_path / "agent"
    tenant = harness.tenant(tmp_path)
    probe = harness.probe(state_dir, tenant)

    async def scenario() -> None:
        state_dir.mkdir()
        settings = Settings(
            api_url="https://unused",
            root_keys_file=tmp_path / "unused",
            agent_state_dir=state_dir,
            sandbox_allowed=True,
        )
        driver = harness.driver(settings)
        await driver.start()
        order = ProvisionOrder(uuid.uuid4(), 7, ProvisionParameters.model_validate(tenant.provision([0])))
        try:
            await perform(driver.provision(order), Unheard())
            launcher = launcher_of(state_dir)
            os.kill(launcher, signal.SIGSTOP)  # it can say nothing of ends until the next start is asked for
            end_processes(probe)
            await async_wait_for(lambda: not probe.processes(), "the guest to end")
            starting = asyncio.create_task(driver.resume())
            await let_others_run(50)
            os.kill(launcher, signal.SIGCONT)
            assert await starting == [order.allocation_id]
            assert order.allocation_id in probe.processes()
        finally:
            await driver.stop(0.0)
            end_processes(probe)

    asyncio.run(scenario())
    assert probe.processes() == {}
