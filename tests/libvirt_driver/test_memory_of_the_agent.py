"""Memory of the agent with eight guests (docs/reference/fleet/libvirt-driver.md has the figures)."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import sys
import uuid
from pathlib import Path

import pytest

from node_agent.protocol import TaskType
from tests.drivers.guest_users import first_user_id
from tests.drivers.libvirt_harness import GUESTS, IMAGE_VARIABLE, LibvirtHarness, usable
from tests.drivers.stage import end_processes
from tests.node_agent.agents import AgentProcess, Tenant, connection_of, release
from tests.node_agent.control_plane import ControlPlane

EIGHT = range(8)
MEGABYTES_MAX = 100.0
HEARTBEATS = 50


def megabytes(pid: int, file: str, name: str) -> float:
    """A figure of /proc in MB."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/{file}").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


class Guests(Tenant):
    """A tenant whose guests all boot the mini guest's image."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.image.write_bytes(Path(os.environ[IMAGE_VARIABLE]).read_bytes())
        self.image_sha256 = hashlib.sha256(self.image.read_bytes()).hexdigest()


# Eight guests at once boot for a minute by emulation.
@pytest.mark.hardware
@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_agent_of_eight_guests_needs_at_most_a_hundred_megabytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = usable(LibvirtHarness())
    plane, tenant = ControlPlane(tmp_path), Guests(tmp_path)
    agent = AgentProcess(
        plane, tmp_path, BERTH_AGENT_DRIVER="libvirt", BERTH_GUEST_USER_ID_FIRST=str(first_user_id()),
        BERTH_GUEST_MEMORY_BYTES=str(96 << 20), BERTH_GUEST_PROCESSORS="1",
        BERTH_GUEST_DISK_BYTES=str(1 << 30), BERTH_AGENT_READINESS_SECONDS="600",
        BERTH_GUEST_DIR=str(harness.directory(tmp_path / "agent")), BERTH_AGENT_STARTUP_SECONDS="60",
    )  # fmt: skip
    GUESTS.mkdir(mode=0o711, exist_ok=True)

    async def up(slot: int) -> uuid.UUID:
        allocation = uuid.uuid4()
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([slot]), allocation))
        await plane.until(lambda: bool(plane.results[task]), 600)
        report = await plane.result_of(task)
        connection = connection_of(report.result)
        assert (await tenant.run(connection, "echo up")).strip() == "up"
        return allocation

    async def scenario() -> None:
        async with plane.running():
            agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
            await plane.until(lambda: plane.waits > 0, 90)
            assert agent.process is not None
            pid = agent.process.pid
            alone = megabytes(pid, "smaps_rollup", "Pss")
            allocations = await asyncio.gather(*map(up, EIGHT))
            before = len(plane.heartbeats)
            await plane.until(lambda: len(plane.heartbeats) >= before + HEARTBEATS, 120)
            inventory = plane.heartbeats[-1].inventory
            assert inventory is not None
            assert len(inventory.allocations) == len(EIGHT)
            pss, rss = megabytes(pid, "smaps_rollup", "Pss"), megabytes(pid, "smaps_rollup", "Rss")
            peak = megabytes(pid, "status", "VmHWM")
            with capsys.disabled():
                sys.stdout.write(
                    f"\nagent: {alone:.0f} MB (PSS) without guests; with eight {pss:.0f} MB (PSS), {rss:.0f} MB (RSS),"
                    f" {peak:.0f} MB at its highest (RSS)\n"
                )
            assert max(pss, rss, peak) <= MEGABYTES_MAX
            for slot, allocation in zip(EIGHT, allocations, strict=True):
                task = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([slot], 0.0), allocation))
                assert (await plane.result_of(task)).outcome == "completed"

    try:
        asyncio.run(scenario())
    except BaseException:
        sys.stderr.write(agent.log[-6000:])
        raise
    finally:
        if agent.process is not None and agent.process.poll() is None:
            agent.kill()
        end_processes(harness.probe(agent.state_dir, tenant))
        harness.clean(agent.state_dir)
