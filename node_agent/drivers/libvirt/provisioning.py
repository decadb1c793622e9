"""The phases that bring one guest up: lease, image, disk, seed, boot, ready message, SSH."""

from __future__ import annotations

import shutil
import uuid
from functools import partial
from uuid import UUID

import structlog

from node_agent.checks.firmware import Ovmf, find_ovmf
from node_agent.drivers.contract import DriverFailure, Phase, Progress, ProvisionOrder
from node_agent.drivers.leases import listed, take_over
from node_agent.drivers.libvirt.disk_pool.guest_disks import activate_disk, make_disk, require_room
from node_agent.drivers.libvirt.disk_pool.pool import PoolShort
from node_agent.drivers.libvirt.disks import ImageRefused, ImageTooLarge, create_disk, inspect_image
from node_agent.drivers.libvirt.domain import CHECK_HOST, domain_xml
from node_agent.drivers.libvirt.hypervisor import processes_of
from node_agent.drivers.libvirt.network.rules import Guest
from node_agent.drivers.libvirt.node import Node
from node_agent.drivers.libvirt.readiness import await_port, await_ssh
from node_agent.drivers.libvirt.records import GuestDirectory, GuestRecord
from node_agent.drivers.libvirt.seed import Seed, write_seed
from node_agent.drivers.libvirt.starting import given, require_gpus, start_guest
from node_agent.drivers.ssh import NotReady, new_host_key
from node_agent.drivers.threads import in_thread
from node_agent.protocol import Connection, FailureCode, ProvisionResult
from node_agent.wire.devices import GuestDevices, unknown
from node_agent.wire.first_boot import FirstBoot, FirstBootStatus
from node_agent.wire.images import BootFirmware, ImageParameters, Readiness

log = structlog.get_logger("node_agent.libvirt")


class Boot:
    """Starts one guest and proves that it is up. A phase that is repeated finds what it has done and keeps it."""

    def __init__(self, node: Node, directory: GuestDirectory) -> None:
        self._node = node
        self._directory = directory
        self._is_ready = self._has_started = False
        self.devices: GuestDevices = unknown("the guest's devices were not read")
        """Those of the running guest, once all phases have ended."""

    def phases(self) -> list[Phase]:
        """From the definition to a guest whose SSH server was seen."""
        return [Phase("boot", self.boot), Phase("ready", self._ready), Phase("ssh_ready", self._ssh_ready)]

    def gpus(self) -> list[str]:
        """The GPUs of the host that the guest has, by PCI address."""
        return self._record().gpus

    def connection(self) -> Connection:
        """Where the tenant logs in."""
        record = self._record()
        assert record.port is not None
        return Connection(
            host=self._node.limits.host, port=record.port, user=record.login_user, host_key=record.host_key
        )

    async def all(self) -> None:
        """Every phase, one after another. Raises DriverFailure."""
        for phase in self.phases():
            await phase.run(lambda _share, _detail: None)

    async def boot(self, _progress: Progress) -> str:
        """Define and start the guest unless it runs."""
        record, node, allocation_id = self._record(), self._node, self._record().allocation_id
        try:
            if await node.hypervisor.is_active(allocation_id):
                if processes_of(self._directory.path):
                    if await node.hypervisor.go_on(allocation_id):
                        log.warning("paused_guest_goes_on", allocation_id=str(allocation_id))
                    # Its message was read when it was started: what it still owes is the proof of its host key.
                    self._is_ready = self._is_ready or not self._has_started
                    return "it runs"
                await node.hypervisor.destroy(allocation_id)
            self._is_ready = False
            await self._bring_into_network(record)
            await in_thread(partial(activate_disk, node.disk_pool, self._directory))
            user_id = node.limits.user_id_first + min(record.slots)
            ovmf = self._ovmf(record)
            xml = domain_xml(self._directory, record, node.accelerator, user_id, node.limits.host, ovmf)
            await start_guest(node, self._directory, record, xml)
            self._has_started = True
        except OSError as error:
            raise await self._failure(FailureCode.GUEST_DEFINITION_FAILED, "the guest did not start", error) from error
        return f"{record.processors} processors, {record.memory_bytes} bytes of memory, by {node.accelerator}"

    @staticmethod
    def _ovmf(record: GuestRecord) -> Ovmf | None:
        if record.firmware is BootFirmware.BIOS:
            return None
        if (found := find_ovmf()) is None:
            raise FileNotFoundError("OVMF is not installed, and the guest boots by UEFI")
        return found

    async def _bring_into_network(self, record: GuestRecord) -> None:
        """Its network's rules hold before the guest starts. Raises OSError."""
        if (order := self._directory.order_of(record)) is not None:
            if self._node.networks is None:
                raise OSError("the guest has a tenant network, and this agent has BERTH_LIBVIRT_NETWORK=user")
            was_there = record.state != "provisioning"
            await self._node.networks.bring_in(Guest(record.allocation_id, order), was_there=was_there)

    async def _ready(self, _progress: Progress) -> str:
        record = self._record()
        if record.readiness is Readiness.SSH:
            return "its SSH server shows it"
        if record.readiness is Readiness.TCP_PORT:
            try:
                await await_port(*_checked(record), self._node.limits.readiness_seconds)
            except NotReady as problem:
                raise await self._failure(FailureCode.GUEST_MARKER_MISSING, "the guest's port", problem) from problem
            return f"port {record.readiness_port} of the guest accepts connections"
        if not self._is_ready:
            try:
                await self._node.first_boots.await_ready(self._directory, self._node.limits.readiness_seconds)
            except NotReady as problem:
                raise await self._failure(FailureCode.GUEST_MARKER_MISSING, "the guest", problem) from problem
            self._is_ready = True
        return "the guest says that it is ready"

    async def _ssh_ready(self, _progress: Progress) -> str:
        record, host = self._record(), self._node.limits.host
        assert record.port is not None
        seconds_max = self._node.limits.readiness_seconds
        # Without cloud-init the guest's own key counts: the first one that it shows on the port that leads to it alone.
        expected = record.host_key or None
        try:
            host_key = await await_ssh(host, record.port, expected, seconds_max)
            if record.state != "running" or expected is None:
                # Read again: the guest's first boot may have ended meanwhile.
                self._directory.save(self._record().model_copy(update={"state": "running", "host_key": host_key}))
        except NotReady as problem:
            raise await self._failure(FailureCode.SSH_READINESS_TIMEOUT, "SSH", problem) from problem
        except OSError as error:
            raise await self._failure(FailureCode.GUEST_DEFINITION_FAILED, "the record", error) from error
        await self._node.first_boots.listen(self._directory)
        self.devices = await self._read_devices(record.allocation_id)
        return f"{host}:{record.port} {host_key}"

    async def _read_devices(self, allocation_id: UUID) -> GuestDevices:
        """A guest whose devices cannot be read is usable all the same."""
        try:
            found = await self._node.hypervisor.devices(allocation_id)
        except (OSError, LookupError) as error:
            found = unknown(str(error))
        if found.devices is None:
            log.warning("guest_devices_unknown", allocation_id=str(allocation_id), why=found.reason)
        return found

    async def _failure(self, code: FailureCode, what: str, problem: Exception) -> DriverFailure:
        # QEMU pauses a guest whose disk cannot grow: of that the guest's silence says nothing.
        full = shutil.disk_usage(self._node.allocations).free < 1 << 20
        pool = self._node.disk_pool
        why = await in_thread(pool.why_full) if pool is not None else ""
        return DriverFailure(
            code, f"{what}: {problem}{'; No space left on device' if full else ''}{why and f'; {why}'}"
        )

    def _record(self) -> GuestRecord:
        record = self._directory.load()
        if record is None:
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, "the guest's record is not there")
        return record


def _checked(record: GuestRecord) -> tuple[str, int]:
    """Where this host reaches the port of the guest's readiness."""
    if record.network is not None:
        assert record.readiness_port is not None
        return str(record.network.address), record.readiness_port
    assert record.check_port is not None
    return CHECK_HOST, record.check_port


class Provisioning:
    """One allocation on its way up."""

    def __init__(self, node: Node, order: ProvisionOrder) -> None:
        self._node = node
        self._order = order
        self._directory = node.directory(order.allocation_id)
        self._boot = Boot(node, self._directory)

    def lease(self) -> Phase:
        """Remove what is there of the allocation, then take its slots."""
        return Phase("lease", self._lease)

    def guest(self) -> list[Phase]:
        """Everything from the image to a guest that is proven ready."""
        made = [Phase("image", self._image), Phase("disk", self._disk), Phase("seed", self._seed)]
        return [*made, *self._boot.phases()]

    def connection(self) -> Connection:
        """Where the tenant logs in."""
        return self._boot.connection()

    def devices(self) -> GuestDevices:
        """The devices of the running guest."""
        return self._boot.devices

    def given(self) -> list[str]:
        """The names of disk and GPUs that the guest has, whose wipe its release proves. Raises OSError."""
        return [self._directory.device, *self._boot.gpus()]

    def result(self) -> ProvisionResult:
        """The proof, once all phases have ended."""
        evidence = {
            "driver": "libvirt",
            "accelerator": self._node.accelerator,
            "slots": self._order.parameters.slots,
            "devices": self.given(),
            **self._boot.devices.evidence(),
        }
        image_sha256 = self._order.parameters.image.sha256
        return ProvisionResult(connection=self.connection(), image_sha256=image_sha256, evidence=evidence)

    async def take_lease(self) -> None:
        """Take the slots under the order's fence, in place of any earlier lease of the allocation. Raises DriverFailure."""
        order = self._order
        await take_over(self._node.leases, order.parameters.slots, order.allocation_id, order.fence, self._node.tend)

    async def require_gpus(self, *, may_run: bool = False) -> None:
        """See `starting.require_gpus`. Raises DriverFailure."""
        await require_gpus(self._node, self._order.allocation_id, self._order.parameters.slots, may_run=may_run)

    async def require_room(self) -> None:
        """Raise DriverFailure if the new disk has no room in the pool, once the one before is removed."""
        if (pool := self._node.disk_pool) is None:
            return
        try:
            await in_thread(partial(require_room, pool, self._order.allocation_id, self._disk_bytes()))
        except PoolShort as short:
            raise DriverFailure(FailureCode.DISK_POOL_SHORT, str(short)) from short
        except OSError as error:
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, f"the disk: {error}") from error

    async def _lease(self, _progress: Progress) -> str:
        order = self._order
        try:
            if self._directory.exists() or await self._is_held():
                await self._node.remove(order.allocation_id)
        except OSError as error:
            raise DriverFailure(
                FailureCode.DRIVER_ERROR, f"the disks that are there cannot be read: {error}"
            ) from error
        await self.take_lease()
        await self.require_gpus()
        return f"slots {listed(order.parameters.slots)} under fence {order.fence}"

    async def _is_held(self) -> bool:
        """Whether libvirt or the pool has something of the allocation. Raises OSError."""
        allocation_id, pool = self._order.allocation_id, self._node.disk_pool
        if await self._node.hypervisor.is_active(allocation_id):
            return True
        return pool is not None and await in_thread(partial(pool.find, allocation_id)) is not None

    async def _image(self, progress: Progress) -> str:
        image, directory = self._order.parameters.image, self._directory
        self._require_fit(image)
        try:
            # QEMU's user of this guest reaches its files by name, whatever the agent's umask is.
            directory.path.mkdir(mode=0o711, exist_ok=True)
            directory.path.chmod(0o711)
            if directory.load() is None:
                directory.save_order(self._new_record())
            await self._node.images.link(image, directory.base, progress)
            found = await in_thread(partial(inspect_image, directory.base, self._disk_bytes(), image.format))
            record = directory.load()
            if record is not None and record.image_format != found.format:
                directory.save(record.model_copy(update={"image_format": found.format}))
        except ImageTooLarge as refused:
            raise DriverFailure(FailureCode.IMAGE_DOES_NOT_FIT, f"image {image.name}: {refused}") from refused
        except ImageRefused as refused:
            detail = f"image {image.name} is refused: {refused}"
            raise DriverFailure(FailureCode.IMAGE_DOWNLOAD_FAILED, detail) from refused
        except OSError as error:
            raise DriverFailure(FailureCode.IMAGE_DOWNLOAD_FAILED, f"image {image.name}: {error}") from error
        return f"{image.name} {found.format} sha256 {image.sha256}"

    async def _disk(self, _progress: Progress) -> str:
        directory, record, pool = self._directory, self._directory.load(), self._node.disk_pool
        assert record is not None
        try:
            if pool is None or directory.disk.exists():
                key, base = directory.key, directory.base
                await in_thread(partial(create_disk, directory.disk, key, base, record.image_format, record.disk_bytes))
                directory.forget_wiped()
                return f"{record.disk_bytes} bytes, encrypted"
            await in_thread(partial(make_disk, pool, directory, record))
            directory.forget_wiped()
        except PoolShort as short:
            raise DriverFailure(FailureCode.DISK_POOL_SHORT, str(short)) from short
        except OSError as error:
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, f"the disk: {error}") from error
        return f"{record.disk_bytes} bytes, encrypted, on the volume {directory.volume}"

    async def _seed(self, _progress: Progress) -> str:
        parameters, directory, record = self._order.parameters, self._directory, self._directory.load()
        assert record is not None
        if directory.seed.exists() and (record.host_key or not record.cloud_init):
            return "it is there"
        private, public = new_host_key() if record.cloud_init else (None, "")
        nonce = uuid.uuid4().hex
        seed = Seed(
            instance_id=str(record.allocation_id), hostname=parameters.hostname, user=parameters.image.login_user,
            ssh_public_keys=parameters.ssh_public_keys, nonce=nonce, user_data=parameters.user_data, network=record.network,
            network_mtu=record.network_mtu, network_domain=self._node.network_domain,
            host_key_private=None if private is None else private.decode(), host_key_public=public,
        )  # fmt: skip
        try:
            await in_thread(partial(write_seed, directory.seed, seed))
            status = FirstBootStatus.PENDING if record.cloud_init else FirstBootStatus.NOT_APPLICABLE
            changes = {"host_key": public, "nonce": nonce, "first_boot": FirstBoot(status=status)}
            directory.save(record.model_copy(update=changes))
        except OSError as error:
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, f"the seed: {error}") from error
        return f"host key {public}" if public else "without a host key: the image has its own"

    def _require_fit(self, image: ImageParameters) -> None:
        """Raise DriverFailure if this node's guest cannot boot the image, before it is fetched."""
        problem = None
        if image.disk_bytes_min is not None and image.disk_bytes_min > self._disk_bytes():
            problem = f"it needs a disk of {image.disk_bytes_min} bytes; the guest gets {self._disk_bytes()}"
        elif image.firmware is BootFirmware.UEFI and find_ovmf() is None:
            problem = "it boots by UEFI, and OVMF is not installed on this node"
        if problem is not None:
            raise DriverFailure(FailureCode.IMAGE_DOES_NOT_FIT, f"image {image.name}: {problem}")

    def _ports(self, image: ImageParameters) -> tuple[int, int | None]:
        """The ports of the host that lead to the guest's SSH server, and to the port of its readiness.

        In a tenant network the first is the order's, and the second is none: the host reaches the guest's own port.
        """
        network = self._order.parameters.network
        try:
            if network is not None:
                self._node.require_free(network.ssh_port)
                return network.ssh_port, None
            port = self._node.free_port(self._node.limits.host)
            waits = image.readiness is Readiness.TCP_PORT
            return port, self._node.free_port(CHECK_HOST, port) if waits else None
        except OSError as error:
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, str(error)) from error

    def _new_record(self) -> GuestRecord:
        order, image = self._order, self._order.parameters.image
        slots = order.parameters.slots
        port, check_port = self._ports(image)
        return GuestRecord(
            allocation_id=order.allocation_id, fence=order.fence, slots=slots, state="provisioning",
            port=port, image_sha256=order.parameters.image.sha256, image_format="qcow2",
            disk_bytes=self._disk_bytes(), restart_policy=order.parameters.restart_policy,
            login_user=image.login_user, firmware=image.firmware, cloud_init=image.cloud_init, readiness=image.readiness,
            readiness_port=image.readiness_port, check_port=check_port, network=order.parameters.network,
            **given(self._node, slots, order.parameters.guest_size),
            network_mtu=self._node.network_mtu if order.parameters.network is not None else None,
        )  # fmt: skip

    def _disk_bytes(self) -> int:
        return self._node.limits.disk_bytes * len(self._order.parameters.slots)
