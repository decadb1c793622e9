"""`private-libvirtd DIR python -m tests.libvirt_driver.libvirtd_killed DIRECTORY`: libvirtd dies under a guest and an agent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from uuid import UUID

from node_agent.protocol import FailureCode
from tests.drivers.checks import SLOT, must_prove
from tests.drivers.harness import must
from tests.drivers.libvirt_harness import LibvirtHarness
from tests.drivers.stage import Stage
from tests.support.waiting import async_wait_for

PID_FILE = Path("/run/libvirt/libvirtd.pid")


def kill_libvirtd() -> None:
    """As the kernel would, when memory is short."""
    os.kill(int(PID_FILE.read_text()), signal.SIGKILL)


def signal_libvirtd(number: signal.Signals) -> None:
    """Stop it, or let it go on."""
    os.kill(int(PID_FILE.read_text()), number)


def start_libvirtd() -> None:
    """As systemd would, afterwards."""
    subprocess.run(
        ["libvirtd", "--daemon", "--pid-file", str(PID_FILE), "--timeout", "0"], check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def without_inventory(stage: Stage, first: int) -> bool:
    """Whether a heartbeat from the `first` on claims no inventory."""
    return any(beat.inventory is None for beat in stage.plane.heartbeats[first:])


async def hang(stage: Stage, allocation_id: UUID) -> None:
    """A libvirtd that does not answer stops no heartbeat."""
    signal_libvirtd(signal.SIGSTOP)
    try:
        for _ in range(2):
            beats = len(stage.plane.heartbeats)
            await async_wait_for(partial(without_inventory, stage, beats), "a heartbeat although libvirtd hangs")
        must(allocation_id in stage.plane.heartbeats[-1].allocations, "the heartbeat forgets the allocation")
    finally:
        signal_libvirtd(signal.SIGCONT)
    beats = len(stage.plane.heartbeats)
    await async_wait_for(
        lambda: [beat for beat in stage.plane.heartbeats[beats:] if beat.inventory is not None],
        "a heartbeat with inventory once libvirtd goes on",
    )


async def scene(directory: Path) -> None:
    """The guest answers, the agent goes on, a release fails closed, and succeeds once libvirtd is back."""
    async with Stage(LibvirtHarness(), directory).running() as stage:
        up = await stage.provision(SLOT)
        await stage.must_be_usable(up, SLOT, "before libvirtd is killed")
        await hang(stage, up.allocation_id)
        kill_libvirtd()
        beats = len(stage.plane.heartbeats)
        await async_wait_for(partial(without_inventory, stage, beats), "a heartbeat that claims no inventory")
        must(up.allocation_id in stage.plane.heartbeats[-1].allocations, "the heartbeat forgets the allocation")
        await stage.must_be_usable(up, SLOT, "without libvirtd")
        down = await stage.release(up.allocation_id, SLOT)
        failure = down.report.failure
        must(failure and failure.code is FailureCode.CLEANUP_FAILED, f"a release without libvirtd: {down.report}")
        must(stage.probe.leases(), "the slot is free although nothing is proven")
        start_libvirtd()
        must_prove(up, await stage.release(up.allocation_id, SLOT))
        await stage.must_be_empty("after libvirtd is back")


if __name__ == "__main__":
    asyncio.run(scene(Path(sys.argv[1])))
