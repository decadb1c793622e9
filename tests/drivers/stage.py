"""A real agent process with the driver of a harness, a scripted control plane, and the outside view of the node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from node_agent.protocol import Connection, HeldInventory, ReleaseResult, ResultReport, TaskType
from tests.drivers.harness import Harness, Probe, Tenant, must
from tests.drivers.seams import BALLAST, Strike
from tests.node_agent.agents import AgentProcess, connection_of, release
from tests.node_agent.control_plane import ControlPlane
from tests.support.waiting import async_wait_for

EffectName = int | Literal["between"]


class HostedAgent(AgentProcess):
    """The agent, with the driver of a harness."""

    command = (sys.executable, "-m", "tests.drivers.agent_host", "node_agent")


@dataclass(frozen=True)
class Ended:
    """A task that ended."""

    allocation_id: UUID
    report: ResultReport
    phases: tuple[str, ...]

    @property
    def connection(self) -> Connection:
        return connection_of(self.report.result)

    @property
    def released(self) -> ReleaseResult:
        return ReleaseResult.model_validate(self.report.result)


class Stage:
    """One node."""

    def __init__(self, harness: Harness, directory: Path) -> None:
        self.harness = harness
        self.plane = ControlPlane(directory)
        self._order_file, self._trace_file = directory / "strike.json", directory / "effects.jsonl"
        seam = {
            "order_file": str(self._order_file), "trace_file": str(self._trace_file),
            "ignored_ports": [self.plane.node_port, self.plane.public_port],
        }  # fmt: skip
        self.agent = HostedAgent(
            self.plane, directory, BERTH_AGENT_LEASE_SECONDS="600", DRIVER_SEAM=json.dumps(seam),
            DRIVER_HARNESS=f"{type(harness).__module__}:{type(harness).__name__}",
        )  # fmt: skip
        self.tenant: Tenant = harness.tenant(directory)
        self.probe: Probe = harness.probe(self.agent.state_dir, self.tenant)
        self.directory = harness.directory(self.agent.state_dir)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Stage]:
        """The agent, started; in the end nothing of it or its guests is left."""
        async with self.plane.running():
            self.agent.start(BERTH_ENROLMENT_TOKEN=self.plane.new_token())
            try:
                await self.plane.until(lambda: self.plane.waits > 0)
                yield self
            except BaseException:
                sys.stderr.write(self.agent.log)
                raise
            finally:
                if self.agent.process is not None and self.agent.process.poll() is None:
                    self.agent.kill()
                end_processes(self.probe)
                self.harness.clean(self.agent.state_dir)

    async def begin_provision(self, slots: list[int], **changes: Any) -> tuple[UUID, UUID]:
        """The ids of an allocation and of the task that brings it up."""
        allocation = uuid.uuid4()
        body = self.plane.body(TaskType.VM_PROVISION, self.tenant.provision(slots, **changes), allocation)
        return allocation, await self.plane.hand_out(body)

    async def provision(self, slots: list[int], **changes: Any) -> Ended:
        """A provision that has ended."""
        return await self.ended(*await self.begin_provision(slots, **changes))

    async def begin_release(self, allocation: UUID, slots: list[int]) -> UUID:
        """The task that takes the allocation down."""
        return await self.plane.hand_out(self.plane.body(TaskType.VM_RELEASE, release(slots, 2.0), allocation))

    async def release(self, allocation: UUID, slots: list[int]) -> Ended:
        """A release that has ended."""
        return await self.ended(allocation, await self.begin_release(allocation, slots))

    async def ended(self, allocation: UUID, task: UUID) -> Ended:
        """The task, when it is reported."""
        report = await self.plane.result_of(task)
        return Ended(allocation, report, tuple(self.plane.progress[task]))

    def arm(self, strike: Strike) -> None:
        """Strike at the next task."""
        strike.write(self._order_file)

    async def struck(self) -> None:
        """Return when the agent has been killed by the strike."""
        process = self.agent.process
        assert process is not None
        await async_wait_for(lambda: process.poll() is not None, "the agent to be killed")
        must(
            process.returncode == -signal.SIGKILL,
            f"the agent ended with status {process.returncode}, not by the strike",
        )

    def armed(self) -> bool:
        """Whether the strike has not happened yet."""
        return self._order_file.exists()

    async def restart(self) -> None:
        """Start the agent again, killing it if it runs, and wait until it asks for tasks."""
        if self.agent.process is not None and self.agent.process.poll() is None:
            self.agent.kill()
        waits = self.plane.waits
        self.agent.start()
        await self.plane.until(lambda: self.plane.waits > waits)

    def effects(self) -> list[tuple[int, EffectName]]:
        """The effects seen since the last call: the place of the phase, and the effect in it."""
        lines = self._trace_file.read_text().splitlines()
        os.truncate(self._trace_file, 0)
        return [(phase, effect) for phase, effect, _ in map(json.loads, lines)]

    async def inventory(self) -> HeldInventory:
        """What the agent reports of the node, gathered from now on."""
        now = self.plane.now()

        def fresh() -> bool:
            last = self.plane.heartbeats[-1].inventory if self.plane.heartbeats else None
            return last is not None and last.gathered_after > now

        await self.plane.until(fresh)
        inventory = self.plane.heartbeats[-1].inventory
        assert inventory is not None
        return inventory

    async def must_report_reality(self, when: str) -> None:
        """The inventory names exactly the allocations that the probe finds, with their slots."""
        inventory = {held.allocation_id: set(held.slots) for held in (await self.inventory()).allocations}
        leased: dict[UUID, set[int]] = {allocation: set() for allocation in self.probe.there()}
        for slot, allocation in self.probe.leases().items():
            leased[allocation].add(slot)
        must(inventory == leased, f"{when} the inventory is {inventory}, and the node holds {leased}")

    async def must_be_empty(self, when: str) -> None:
        """Nothing of any allocation is there, and the inventory says so."""
        must(not self.probe.there(), f"{when} there are still {self.probe.snapshot()}")
        await self.must_report_reality(when)

    async def must_be_usable(self, ended: Ended, slots: list[int], when: str) -> None:
        """The provision completed, and a tenant can use what it says."""
        must(ended.report.outcome == "completed", f"{when} a provision ends with {ended.report.failure}")
        allocation = ended.allocation_id
        must(allocation in self.probe.processes(), f"{when} no process of allocation {allocation} runs")
        must(allocation in self.probe.files(), f"{when} nothing of allocation {allocation} is on the disk")
        leased = {slot for slot, holder in self.probe.leases().items() if holder == allocation}
        must(leased == set(slots), f"{when} slots {leased} are leased, not {slots}")
        must(await self.probe.answers(ended.connection, allocation), f"{when} the guest does not answer its tenant")

    def free_disk(self) -> None:
        """Take away what fills the disk."""
        (self.directory / BALLAST).unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(directory: Path, size_bytes: int) -> Any:
    """A file system of this size at `directory`, a tmpfs; None within if this process may not mount one, else its path."""
    directory.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield directory if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)


def end_processes(probe: Probe) -> None:
    """Kill every process of every allocation."""
    for pids in probe.processes().values():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def run(harness: Harness, directory: Path, check: Any) -> str | None:
    """The breach that `check` finds on a node of this harness, or None."""

    async def scene() -> None:
        async with Stage(harness, directory).running() as stage:
            await check(stage)

    try:
        asyncio.run(scene())
    except AssertionError as breach:
        return str(breach) or repr(breach)
    return None
