"""The sandbox driver: no privileges, everything else real (DESIGN §9, docs/reference/sandbox-driver.md).

An allocation is a directory with its own image file, a lease file per slot, and an SSH server in a process of its
own. It does not protect tenants from each other or the node from tenants: it is for local stacks, demonstrations and
tests.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from uuid import UUID

import structlog

from node_agent.discovery.discover import discover
from node_agent.drivers.console_logs import read_log
from node_agent.drivers.contract import (
    ConsoleText,
    DriverFailure,
    Inventory,
    Plan,
    ProvisionOrder,
    ReleaseOrder,
    Verb,
    VerbOrder,
)
from node_agent.drivers.images import ImageCache
from node_agent.drivers.inventory import take_inventory
from node_agent.drivers.leases import Leases
from node_agent.drivers.performing import Unheard, perform
from node_agent.drivers.sandbox.faults import Faults
from node_agent.drivers.sandbox.launching import GuestLauncher, GuestProblem
from node_agent.drivers.sandbox.processes import alive, end_guest, has_processes
from node_agent.drivers.sandbox.provisioning import NO_DEVICES, Node, Provisioning, SandboxLimits
from node_agent.drivers.sandbox.records import AllocationDirectory, GuestRecord
from node_agent.drivers.sandbox.release import SandboxRemoval
from node_agent.drivers.sandbox.serial_port import serial_port
from node_agent.drivers.sandbox.verbs import Restart, boot_again, rebuild_phases
from node_agent.drivers.ssh import GREETING_SECONDS, greets
from node_agent.drivers.under_way import UnderWay
from node_agent.durable_files import make_private_directory
from node_agent.protocol import FailureCode, ProvisionResult, ReleaseResult, VerbResult
from node_agent.wire.topology import Topology

log = structlog.get_logger("node_agent.sandbox")


class SandboxDriver:
    """See `drivers.contract` for what it guarantees."""

    name = "sandbox"
    verbs = frozenset(Verb)

    def __init__(self, directory: Path, host: str, limits: SandboxLimits) -> None:
        """Make the directories. Raises OSError."""
        self._allocations = directory / "allocations"
        for folder in (directory, self._allocations, directory / "images", directory / "leases"):
            make_private_directory(folder)
        self._host = host
        self._images = ImageCache(directory / "images", limits.images)
        self._leases = Leases(directory / "leases", limits.lease_seconds)
        self._launcher = GuestLauncher(directory / "launcher.lock")
        self._node = Node(
            host, limits, self._leases, self._images, self._launcher, self.cleanup, self.tend_leases
        )  # fmt: skip
        self._under_way = UnderWay()

    async def start(self) -> None:
        """Wait until no earlier agent's launcher can make guests any more; forget partial downloads."""
        await self._launcher.wait_for_predecessor()
        self._images.forget_partial()

    async def resume(self) -> list[UUID]:
        """Adopt living guests of allocations that should run, and start the dead ones again on their old port."""
        running: list[UUID] = []
        for directory, record in self._records():
            if record.state != "running":
                continue
            try:
                if not alive(directory):
                    if not record.starts_again:
                        continue
                    await boot_again(self._node, directory, record)
                    log.info("guest_started_again", allocation_id=str(record.allocation_id), port=record.port)
                running.append(record.allocation_id)
            except (GuestProblem, OSError) as error:
                log.error("guest_not_started_again", allocation_id=str(record.allocation_id), why=str(error))
        return running

    async def restart(self, allocation_id: UUID) -> bool:
        """Start the guest again on its old port. Raises DriverFailure, OSError."""
        directory = self._directory(allocation_id)
        record = directory.load()
        if record is None or not record.starts_again or allocation_id in self._under_way:
            return False
        with self._under_way.scope(allocation_id)():
            try:
                await boot_again(self._node, directory, record)
            except GuestProblem as problem:
                raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, str(problem)) from problem
        return True

    def provision(self, order: ProvisionOrder) -> Plan[ProvisionResult]:
        """Lease, image, boot, SSH readiness, marker."""
        up = Provisioning(self._node, self._directory(order.allocation_id), order)
        scope = self._under_way.scope(order.allocation_id, up.heard)
        return Plan((up.lease(), *up.guest()), up.result, scope)

    def release(self, order: ReleaseOrder) -> Plan[ReleaseResult]:
        """Stop gracefully, then hard; wipe; drop the leases; say what is proven of each."""
        parameters = order.parameters
        removal = self._removal(order.allocation_id, parameters.graceful_seconds, Faults(parameters.faults)).plan()
        return Plan(removal.phases, removal.result, self._under_way.scope(order.allocation_id))

    def verb(self, order: VerbOrder) -> Plan[VerbResult]:
        """Reboot, stop, start, rebuild."""
        directory = self._directory(order.allocation_id)
        rebuilding = order.verb is Verb.REBUILD and order.allocation_id in {
            lease.allocation_id for lease in self._leases.held().values()
        }
        if not rebuilding and directory.load() is None:
            raise DriverFailure(FailureCode.TASK_REFUSED, f"nothing is held of allocation {order.allocation_id}")
        faults = Faults(order.faults)
        removal = self._removal(order.allocation_id, order.graceful_seconds, faults)
        if order.verb is not Verb.REBUILD:
            restart = Restart(self._node, directory, removal, faults)
            return Plan(restart.phases(order.verb), restart.result, self._under_way.scope(order.allocation_id))
        if order.parameters is None:
            raise DriverFailure(FailureCode.TASK_REFUSED, "a rebuild needs the parameters of the new guest")
        up = Provisioning(self._node, directory, ProvisionOrder(order.allocation_id, order.fence, order.parameters))
        scope = self._under_way.scope(order.allocation_id, up.heard)
        return Plan(
            rebuild_phases(removal, up),
            lambda: VerbResult(connection=up.connection(), evidence=NO_DEVICES.evidence()),
            scope,
        )

    async def cleanup(self, allocation_id: UUID) -> None:
        """Release without grace. Raises DriverFailure(CLEANUP_FAILED)."""
        removal = self._removal(allocation_id, 0.0, Faults({})).plan()
        await perform(Plan(removal.phases, removal.result, self._under_way.scope(allocation_id)), Unheard())

    async def inventory(self) -> Inventory:
        """What directories and leases say."""
        return take_inventory(self._directories(), self._leases, alive)

    async def tend_leases(self) -> list[int]:
        """See `Leases.tend`; in use is what has a directory, a process, or a task under way."""
        cleared = self._leases.tend(self._in_use)
        for slot, lease in cleared.items():
            log.warning("lease_cleared", slot=slot, allocation_id=str(lease.allocation_id) if lease else None)
        return list(cleared)

    def _in_use(self, allocation_id: UUID) -> bool:
        there = self._directory(allocation_id).exists() or allocation_id in self._under_way
        return there or has_processes(allocation_id)

    async def topology(self) -> Topology:
        """See `node_agent.discovery`."""
        return await discover(self.name)

    async def answers(self, allocation_id: UUID) -> bool:
        """See `Answering`."""
        record = self._directory(allocation_id).load()
        if record is None or record.port is None:
            return False
        return await greets(self._host, record.port, GREETING_SECONDS)

    async def console(self, allocation_id: UUID, offset: int, bytes_max: int) -> ConsoleText:
        """What the guest's process wrote to its standard error."""
        try:
            return read_log(self._directory(allocation_id).log_file, offset, bytes_max)
        except FileNotFoundError as error:
            raise LookupError(f"no guest runs for allocation {allocation_id}") from error

    def attach(self, allocation_id: UUID) -> AbstractAsyncContextManager[int]:
        """A pseudo-terminal that repeats each line (docs/reference/sandbox-driver.md): the guest itself has no serial port."""
        directory = self._directory(allocation_id)
        return serial_port(allocation_id, lambda: alive(directory))

    async def stop(self, grace_seconds: float) -> None:
        """End every guest, all at once; their records still say that they should run."""
        guests = [directory for directory, _ in self._records()]
        ended = await asyncio.gather(*(end_guest(guest, grace_seconds) for guest in guests), return_exceptions=True)
        for guest, problem in zip(guests, ended, strict=True):
            if isinstance(problem, BaseException):
                log.error("guest_not_stopped", allocation=guest.path.name, why=str(problem))
        await self.close()

    async def close(self) -> None:
        """End the launcher; guests go on."""
        await self._launcher.stop()

    def _removal(self, allocation_id: UUID, grace_seconds: float, faults: Faults) -> SandboxRemoval:
        return SandboxRemoval(allocation_id, self._directory(allocation_id), self._leases, grace_seconds, faults)

    def _directory(self, allocation_id: UUID) -> AllocationDirectory:
        return AllocationDirectory(self._allocations / str(allocation_id))

    def _records(self) -> list[tuple[AllocationDirectory, GuestRecord]]:
        return [(directory, record) for directory in self._directories() if (record := directory.load()) is not None]

    def _directories(self) -> list[AllocationDirectory]:
        return [AllocationDirectory(path) for path in sorted(self._allocations.iterdir())]
