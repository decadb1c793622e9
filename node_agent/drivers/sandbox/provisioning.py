"""The phases that bring one allocation up in the sandbox: lease, image, boot, SSH readiness, marker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from node_agent.drivers.contract import DriverFailure, Phase, Progress, ProvisionOrder
from node_agent.drivers.images import ImageBounds, ImageCache
from node_agent.drivers.leases import Leases, listed, take_over
from node_agent.drivers.sandbox.faults import Faults
from node_agent.drivers.sandbox.launching import Boot, GuestLauncher, GuestProblem
from node_agent.drivers.sandbox.processes import alive
from node_agent.drivers.sandbox.records import AllocationDirectory, GuestRecord
from node_agent.drivers.ssh import NotReady, check_ssh, new_host_key, read_host_key
from node_agent.protocol import Connection, FailureCode, ProvisionResult
from node_agent.wire.devices import GuestDevices

NO_DEVICES = GuestDevices(
    devices=[], reason="a guest of the sandbox is a process of the node and has no virtual device"
)
ENDED_SECONDS_MAX = 1.0
"""How long the end of a guest whose SSH server fails may take to be heard."""


@dataclass(frozen=True)
class SandboxLimits:
    """Bounds of one node's sandbox. Seconds and bytes."""

    ssh_port_first: int
    ssh_port_last: int
    readiness_seconds: float
    images: ImageBounds
    lease_seconds: float


@dataclass(frozen=True)
class Node:
    """What the allocations of one node have in common. `remove` and `tend` are the driver's."""

    host: str
    limits: SandboxLimits
    leases: Leases
    images: ImageCache
    launcher: GuestLauncher
    remove: Callable[[UUID], Awaitable[None]]
    tend: Callable[[], Awaitable[list[int]]]


class Provisioning:
    """One allocation on its way up. A phase that is repeated finds what it has made and keeps it."""

    def __init__(self, node: Node, directory: AllocationDirectory, order: ProvisionOrder) -> None:
        self._node = node
        self._directory = directory
        self._order = order
        self._faults = Faults(order.parameters.faults)
        self._record: GuestRecord | None = None
        self._boot_under_way: Boot | None = None
        self._host_key = ""
        self._port = 0

    def lease(self) -> Phase:
        """Remove what is there of the allocation, then take its slots."""
        return Phase("lease", self._lease)

    def guest(self) -> list[Phase]:
        """Everything from the image to a guest that is proven ready."""
        return [
            Phase("image", self._image),
            Phase("boot", self._boot),
            Phase("ssh_ready", self._ssh_ready),
            Phase("guest_marker", self._guest_marker),
        ]

    def result(self) -> ProvisionResult:
        """The proof, once all phases have ended."""
        evidence = {
            "driver": "sandbox",
            "slots": self._order.parameters.slots,
            "image_bytes": self._directory.image_file.stat().st_size,
            "devices": [self._directory.device],
            **NO_DEVICES.evidence(),
        }
        return ProvisionResult(
            connection=self.connection(), image_sha256=self._order.parameters.image.sha256, evidence=evidence
        )

    def connection(self) -> Connection:
        """Where the tenant logs in."""
        return Connection(
            host=self._node.host, port=self._port, user=self._order.parameters.image.login_user, host_key=self._host_key
        )

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen to the launcher for this guest within, and no longer."""
        try:
            yield
        finally:
            self._node.launcher.forget(self._directory.path)

    async def _lease(self, _progress: Progress) -> str:
        order, faults = self._order, self._faults
        if self._directory.exists():
            await self._node.remove(order.allocation_id)
        await faults.silent()
        await faults.slow("lease")
        faults.fail("lease_conflict", FailureCode.LEASE_CONFLICT, "a slot is leased to another allocation")
        await self.take_lease()
        return f"slots {listed(order.parameters.slots)} under fence {order.fence}"

    async def take_lease(self) -> None:
        """Take the slots under the order's fence, in place of any earlier lease of the allocation. Raises DriverFailure."""
        order = self._order
        await take_over(self._node.leases, order.parameters.slots, order.allocation_id, order.fence, self._node.tend)

    async def _image(self, progress: Progress) -> str:
        order, faults = self._order, self._faults
        faults.die()
        await faults.slow("image")
        self._define()
        faults.fail("image_fit", FailureCode.IMAGE_DOES_NOT_FIT, "the image needs a larger disk")
        faults.fail("image_download", FailureCode.IMAGE_DOWNLOAD_FAILED, "the image could not be fetched")
        image = order.parameters.image
        if faults.on("image_checksum"):
            # The bytes are fetched as ever; it is the expectation that is spoilt.
            image = image.model_copy(
                update={"sha256": image.sha256[::-1] if image.sha256[::-1] != image.sha256 else "0" * 64}
            )
        size = await self._node.images.place(image, self._directory.image_file, progress)
        return f"{order.parameters.image.name} {size} bytes sha256 {order.parameters.image.sha256}"

    async def _boot(self, _progress: Progress) -> str:
        faults, limits = self._faults, self._node.limits
        await faults.slow("boot")
        faults.fail("vfio", FailureCode.VFIO_HOST_NOT_READY, "a device is not bound to vfio-pci")
        faults.fail(
            "guest_size", FailureCode.GUEST_SIZE_UNAVAILABLE, "the slots have fewer processors than the SKU states"
        )
        faults.fail("huge_pages", FailureCode.HUGE_PAGES_SHORT, "the node has too few free huge pages")
        faults.fail("disk_pool", FailureCode.DISK_POOL_SHORT, "the node's thin pool has no room for the disk")
        faults.fail("guest_definition", FailureCode.GUEST_DEFINITION_FAILED, "the guest could not be defined")
        try:
            if self._boot_under_way is None or not alive(self._directory):
                self._boot_under_way = await self._node.launcher.launch(self._directory.path)
            seconds_max = faults.seconds("ssh_readiness", limits.readiness_seconds)
            self._port = await listening(self._boot_under_way, seconds_max)
        except (GuestProblem, OSError) as problem:
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, f"the guest did not start: {problem}") from problem
        return f"the guest listens on port {self._port}"

    async def _ssh_ready(self, _progress: Progress) -> str:
        await self._faults.slow("ssh_ready")
        try:
            await check_ssh(self._node.host, self._port, self._host_key, self._node.limits.readiness_seconds)
        except NotReady as problem:
            assert self._boot_under_way is not None
            ended = await self._boot_under_way.why_ended(ENDED_SECONDS_MAX)
            detail = str(problem) if ended is None else f"{problem}; {ended}"
            raise DriverFailure(FailureCode.SSH_READINESS_TIMEOUT, detail) from problem
        return f"{self._node.host}:{self._port} {self._host_key}"

    async def _guest_marker(self, _progress: Progress) -> str:
        await self._faults.slow("guest_marker")
        seconds_max = self._faults.seconds("guest_marker", self._node.limits.readiness_seconds)
        assert self._boot_under_way is not None
        try:
            async with asyncio.timeout(seconds_max):
                await self._boot_under_way.ready
        except (TimeoutError, GuestProblem) as error:
            detail = f"no marker within {seconds_max:g} s: {error}".rstrip(": ")
            raise DriverFailure(FailureCode.GUEST_MARKER_MISSING, detail) from error
        if not self._directory.marker_file.exists():
            raise DriverFailure(
                FailureCode.GUEST_MARKER_MISSING, "the guest says that it is ready; its marker is not there"
            )
        assert self._record is not None
        try:
            self._directory.save(self._record.model_copy(update={"state": "running", "port": self._port}))
        except OSError as error:
            detail = f"that the guest runs cannot be written: {error}"
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, detail) from error
        return "the guest has written its marker"

    def _define(self) -> None:
        order, directory, faults = self._order, self._directory, self._faults
        self._record = GuestRecord(
            allocation_id=order.allocation_id,
            fence=order.fence,
            slots=order.parameters.slots,
            state="provisioning",
            host=self._node.host,
            port_first=self._node.limits.ssh_port_first,
            port_last=self._node.limits.ssh_port_last,
            hostname=order.parameters.hostname,
            ssh_public_keys=order.parameters.ssh_public_keys,
            image_sha256=order.parameters.image.sha256,
            listens=not faults.on("ssh_readiness"),
            writes_marker=not faults.on("guest_marker"),
            restart_policy=order.parameters.restart_policy,
            login_user=order.parameters.image.login_user,
        )
        try:
            directory.path.mkdir(mode=0o700, exist_ok=True)
            directory.save(self._record)
            directory.home.mkdir(mode=0o700, exist_ok=True)
            self._host_key = self._keep_or_make_host_key()
            if order.parameters.user_data is not None:
                (directory.home / "user-data").write_text(order.parameters.user_data)
        except OSError as error:
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, str(error)) from error

    def _keep_or_make_host_key(self) -> str:
        file = self._directory.host_key_file
        if self._host_key:
            return read_host_key(file.read_bytes())
        private_key, public_key = new_host_key()
        file.touch(mode=0o600)
        file.write_bytes(private_key)
        return public_key


async def listening(boot: Boot, seconds_max: float) -> int:
    """The port on which the guest listens. Raises DriverFailure after `seconds_max`, and GuestProblem if it has ended."""
    try:
        async with asyncio.timeout(seconds_max):
            return await asyncio.shield(boot.listening)
    except TimeoutError as error:
        detail = f"the guest did not listen within {seconds_max:g} s"
        raise DriverFailure(FailureCode.SSH_READINESS_TIMEOUT, detail) from error
