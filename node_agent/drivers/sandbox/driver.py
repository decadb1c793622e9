"""The sandbox driver: no privileges, everything else real (DESIGN §9, docs/reference/sandbox-driver.md).

An allocation is a directory with its own image file, a lease file per slot, and an SSH server in a process of its
own. It does not protect tenants from each other or the node from tenants: it is for local stacks, demonstrations and
tests.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog

from node_agent.drivers.interface import DriverFailure, Inventory, PhaseReporter, ProvisionOrder, ReleaseOrder
from node_agent.drivers.sandbox.faults import Faults
from node_agent.drivers.sandbox.images import ImageCache
from node_agent.drivers.sandbox.inventory import take_inventory
from node_agent.drivers.sandbox.launching import Boot, GuestLauncher, GuestProblem
from node_agent.drivers.sandbox.leases import Leases, listed
from node_agent.drivers.sandbox.processes import alive, end_guest, has_processes
from node_agent.drivers.sandbox.readiness import NotReady, check_ssh, new_host_key, read_host_key
from node_agent.drivers.sandbox.records import AllocationDirectory, GuestRecord
from node_agent.drivers.sandbox.release import Removal
from node_agent.durable_files import make_private_directory
from node_agent.protocol import Connection, FailureCode, ProvisionResult, ReleaseResult

log = structlog.get_logger("node_agent.sandbox")

TENANT = "tenant"


@dataclass(frozen=True)
class SandboxLimits:
    """Bounds of one node's sandbox. Seconds and bytes."""

    ssh_port_first: int
    ssh_port_last: int
    readiness_seconds: float
    image_bytes_max: int
    image_cache_max: int
    lease_seconds: float


class SandboxDriver:
    """See `drivers.interface` for what it guarantees."""

    name = "sandbox"

    def __init__(self, directory: Path, host: str, limits: SandboxLimits) -> None:
        """Make the directories. Raises OSError."""
        self._host = host
        self._limits = limits
        self._allocations = directory / "allocations"
        for folder in (directory, self._allocations, directory / "images", directory / "leases"):
            make_private_directory(folder)
        self._images = ImageCache(directory / "images", limits.image_bytes_max, limits.image_cache_max)
        self._leases = Leases(directory / "leases", limits.lease_seconds)
        self._launcher = GuestLauncher(directory / "launcher.lock")
        self._working_on: Counter[UUID] = Counter()

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
                    await self._boot_again(directory, record)
                    log.info("guest_started_again", allocation_id=str(record.allocation_id), port=record.port)
                running.append(record.allocation_id)
            except (GuestProblem, NotReady, OSError) as error:
                log.error("guest_not_started_again", allocation_id=str(record.allocation_id), why=str(error))
        return running

    async def provision(self, order: ProvisionOrder, report_phase: PhaseReporter) -> ProvisionResult:
        """Lease, image, boot, SSH readiness, marker: each reported as a phase when it is done."""
        with self._at_work_on(order.allocation_id):
            return await self._provision(order, report_phase)

    async def _provision(self, order: ProvisionOrder, report_phase: PhaseReporter) -> ProvisionResult:
        faults = Faults(order.parameters.faults)
        directory = self._directory(order.allocation_id)
        if directory.exists():
            await self.cleanup(order.allocation_id)

        await faults.silent()
        await faults.slow("lease")
        faults.fail("lease_conflict", FailureCode.LEASE_CONFLICT, "a slot is leased to another allocation")
        self._leases.drop(order.allocation_id)
        try:
            self._leases.take(order.parameters.slots, order.allocation_id, order.fence)
        except DriverFailure:
            # If the conflicting lease is dead, the next attempt finds the slot free.
            await self.tend_leases()
            raise
        report_phase("lease", f"slots {listed(order.parameters.slots)} under fence {order.fence}")

        faults.die()
        await faults.slow("image")
        record, host_key = self._define(directory, order, faults)
        size = await self._place_image(directory, order, faults)
        report_phase("image", f"{order.parameters.image.name} {size} bytes sha256 {order.parameters.image.sha256}")

        await faults.slow("boot")
        faults.fail("vfio", FailureCode.VFIO_HOST_NOT_READY, "a device is not bound to vfio-pci")
        faults.fail("guest_definition", FailureCode.GUEST_DEFINITION_FAILED, "the guest could not be defined")
        try:
            return await self._boot(directory, record, host_key, order, faults, report_phase)
        finally:
            self._launcher.forget(directory.path)

    async def release(self, order: ReleaseOrder, report_phase: PhaseReporter) -> ReleaseResult:
        """Stop gracefully, then hard; wipe; drop the leases; say what is proven of each."""
        faults = Faults(order.parameters.faults)
        removal = self._removal(order.allocation_id)
        with self._at_work_on(order.allocation_id):
            return await removal.run(order.parameters.graceful_seconds, faults, report_phase)

    async def cleanup(self, allocation_id: UUID) -> None:
        """Release without grace. Raises DriverFailure(CLEANUP_FAILED)."""
        with self._at_work_on(allocation_id):
            result = await self._removal(allocation_id).run(0.0, Faults({}), lambda _phase, _detail: None)
        if not result.released:
            raise DriverFailure(FailureCode.CLEANUP_FAILED, result.model_dump_json())

    async def inventory(self) -> Inventory:
        """What directories and leases say."""
        return take_inventory(self._allocations, self._leases)

    async def tend_leases(self) -> list[int]:
        """See `Leases.tend`; in use is what has a directory, a process, or a task under way."""
        cleared = self._leases.tend(self._in_use)
        for slot, lease in cleared.items():
            log.warning("lease_cleared", slot=slot, allocation_id=str(lease.allocation_id) if lease else None)
        return list(cleared)

    def _in_use(self, allocation_id: UUID) -> bool:
        there = self._directory(allocation_id).exists() or self._working_on[allocation_id] > 0
        return there or has_processes(allocation_id)

    @contextmanager
    def _at_work_on(self, allocation_id: UUID) -> Iterator[None]:
        self._working_on[allocation_id] += 1
        try:
            yield
        finally:
            self._working_on[allocation_id] -= 1
            if not self._working_on[allocation_id]:
                del self._working_on[allocation_id]

    async def facts(self) -> dict[str, Any]:
        """The node's processors, memory and disk. A sandbox has no GPUs to discover."""
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return {
            "driver": self.name,
            "processors": os.cpu_count(),
            "memory_bytes": pages * page_bytes,
            "disk_free_bytes": shutil.disk_usage(self._allocations).free,
            "gpus": [],
            "kernel": os.uname().release,
        }

    async def stop(self, grace_seconds: float) -> None:
        """End every guest, all at once; their records still say that they should run."""
        guests = [directory for directory, _ in self._records()]
        ended = await asyncio.gather(*(end_guest(guest, grace_seconds) for guest in guests), return_exceptions=True)
        for guest, problem in zip(guests, ended, strict=True):
            if isinstance(problem, BaseException):
                log.error("guest_not_stopped", allocation=guest.path.name, why=str(problem))
        await self._launcher.stop()

    def _define(self, directory: AllocationDirectory, order: ProvisionOrder, faults: Faults) -> tuple[GuestRecord, str]:
        record = GuestRecord(
            allocation_id=order.allocation_id,
            fence=order.fence,
            slots=order.parameters.slots,
            state="provisioning",
            host=self._host,
            port_first=self._limits.ssh_port_first,
            port_last=self._limits.ssh_port_last,
            hostname=order.parameters.hostname,
            ssh_public_keys=order.parameters.ssh_public_keys,
            image_sha256=order.parameters.image.sha256,
            listens=not faults.on("ssh_readiness"),
            writes_marker=not faults.on("guest_marker"),
        )
        try:
            directory.path.mkdir(mode=0o700)
            directory.save(record)
            directory.home.mkdir(mode=0o700)
            private_key, public_key = new_host_key()
            directory.host_key_file.touch(mode=0o600)
            directory.host_key_file.write_bytes(private_key)
            if order.parameters.user_data is not None:
                (directory.home / "user-data").write_text(order.parameters.user_data)
        except OSError as error:
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, str(error)) from error
        return record, public_key

    async def _place_image(self, directory: AllocationDirectory, order: ProvisionOrder, faults: Faults) -> int:
        faults.fail("image_download", FailureCode.IMAGE_DOWNLOAD_FAILED, "the image could not be fetched")
        image = order.parameters.image
        if faults.on("image_checksum"):
            # The bytes are fetched as ever; it is the expectation that is spoilt.
            image = image.model_copy(
                update={"sha256": image.sha256[::-1] if image.sha256[::-1] != image.sha256 else "0" * 64}
            )
        return await self._images.place(image, directory.image_file)

    async def _boot(
        self, directory: AllocationDirectory, record: GuestRecord, host_key: str, order: ProvisionOrder,
        faults: Faults, report_phase: PhaseReporter,
    ) -> ProvisionResult:  # fmt: skip
        try:
            boot = await self._launcher.launch(directory.path)
            port = await self._listening(boot, faults.seconds("ssh_readiness", self._limits.readiness_seconds))
        except GuestProblem as problem:
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, f"the guest did not start: {problem}") from problem
        report_phase("boot", f"the guest listens on port {port}")

        await faults.slow("ssh_ready")
        try:
            await check_ssh(self._host, port, host_key, self._limits.readiness_seconds)
        except NotReady as problem:
            raise DriverFailure(FailureCode.SSH_READINESS_TIMEOUT, str(problem)) from problem
        report_phase("ssh_ready", f"{self._host}:{port} {host_key}")

        await faults.slow("guest_marker")
        await self._marker(directory, boot, faults.seconds("guest_marker", self._limits.readiness_seconds))
        directory.save(record.model_copy(update={"state": "running", "port": port}))
        report_phase("guest_marker", "the guest has written its marker")
        connection = Connection(host=self._host, port=port, user=TENANT, host_key=host_key)
        evidence = {"driver": self.name, "slots": record.slots, "image_bytes": directory.image_file.stat().st_size}
        return ProvisionResult(connection=connection, image_sha256=order.parameters.image.sha256, evidence=evidence)

    async def _listening(self, boot: Boot, seconds_max: float) -> int:
        try:
            async with asyncio.timeout(seconds_max):
                return await boot.listening
        except TimeoutError as error:
            detail = f"the guest did not listen within {seconds_max:g} s"
            raise DriverFailure(FailureCode.SSH_READINESS_TIMEOUT, detail) from error

    async def _marker(self, directory: AllocationDirectory, boot: Boot, seconds_max: float) -> None:
        try:
            async with asyncio.timeout(seconds_max):
                await boot.ready
        except (TimeoutError, GuestProblem) as error:
            detail = f"no marker within {seconds_max:g} s: {error}".rstrip(": ")
            raise DriverFailure(FailureCode.GUEST_MARKER_MISSING, detail) from error
        if not directory.marker_file.exists():
            raise DriverFailure(
                FailureCode.GUEST_MARKER_MISSING, "the guest says that it is ready; its marker is not there"
            )

    async def _boot_again(self, directory: AllocationDirectory, record: GuestRecord) -> None:
        directory.marker_file.unlink(missing_ok=True)
        boot = await self._launcher.launch(directory.path)
        try:
            port = await self._listening(boot, self._limits.readiness_seconds)
            host_key = read_host_key(directory.host_key_file.read_bytes())
            await check_ssh(self._host, port, host_key, self._limits.readiness_seconds)
        except (DriverFailure, ValueError) as error:
            raise GuestProblem(str(error)) from error
        finally:
            self._launcher.forget(directory.path)

    def _removal(self, allocation_id: UUID) -> Removal:
        return Removal(allocation_id, self._directory(allocation_id), self._leases)

    def _directory(self, allocation_id: UUID) -> AllocationDirectory:
        return AllocationDirectory(self._allocations / str(allocation_id))

    def _records(self) -> list[tuple[AllocationDirectory, GuestRecord]]:
        directories = [AllocationDirectory(path) for path in sorted(self._allocations.iterdir())]
        return [(directory, record) for directory in directories if (record := directory.load()) is not None]
