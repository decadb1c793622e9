"""The libvirt driver: a slice is a virtual machine of QEMU, defined in libvirt (docs/reference/fleet/libvirt-driver.md).

Domains are persistent and never start by themselves; each names its allocation, fence and slots in its metadata. Guests outlive
the agent and libvirtd: an agent without memory finds them by directories, leases, domains and processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from uuid import UUID

import structlog

from node_agent.checks.accelerator import kvm_boots
from node_agent.discovery.discover import discover
from node_agent.drivers.console_logs import read_log
from node_agent.drivers.contract import (
    ConsoleText,
    DiskSpace,
    DriverFailure,
    GuestState,
    Held,
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
from node_agent.drivers.libvirt.disk_pool.pool import DiskPool, PoolSettings
from node_agent.drivers.libvirt.disk_pool.volumes_held import held_in, require_pool
from node_agent.drivers.libvirt.disks import end_strays
from node_agent.drivers.libvirt.first_boot import FirstBoots
from node_agent.drivers.libvirt.host_slots import SLOTS_FILE
from node_agent.drivers.libvirt.hypervisor import Hypervisor, kill_all, processes_of
from node_agent.drivers.libvirt.network.dhcp import NameServers
from node_agent.drivers.libvirt.network.networks import TenantNetworks
from node_agent.drivers.libvirt.network.policy import Policy
from node_agent.drivers.libvirt.network.span import Span
from node_agent.drivers.libvirt.node import LibvirtLimits, Node
from node_agent.drivers.libvirt.placing import Placing
from node_agent.drivers.libvirt.provisioning import Boot, Provisioning
from node_agent.drivers.libvirt.records import GuestDirectory
from node_agent.drivers.libvirt.release import GuestRemoval
from node_agent.drivers.libvirt.starting import GpuSettings, look_at_host, require_size
from node_agent.drivers.libvirt.verbs import Restart, rebuild_phases
from node_agent.drivers.libvirt.vfio.taken import TakenDevices
from node_agent.drivers.performing import Unheard, perform
from node_agent.drivers.removal import StillThere
from node_agent.drivers.ssh import GREETING_SECONDS, greets
from node_agent.drivers.threads import in_thread
from node_agent.drivers.under_way import UnderWay
from node_agent.durable_files import make_private_directory
from node_agent.problems import CannotStart
from node_agent.protocol import FailureCode, ProvisionResult, ReleaseResult, VerbResult
from node_agent.wire.networks import SpannedNetwork
from node_agent.wire.topology import Topology

log = structlog.get_logger("node_agent.libvirt")

STARTS_AT_ONCE_MAX = 4


class LibvirtDriver:
    """See `drivers.contract` for what it guarantees."""

    name = "libvirt"
    verbs = frozenset(Verb)

    def __init__(
        self, directory: Path, uri: str, limits: LibvirtLimits, policy: Policy | None = None,
        gpus: GpuSettings | None = None, disk_pool: PoolSettings | None = None,
    ) -> None:  # fmt: skip
        """Make the directories. `policy`: that of tenant networks; None: each guest is alone. `gpus`: of those that guests get;
        None: they get none. `disk_pool`: where disks are volumes; None: they are files. Raises OSError."""
        allocations, images, leases = (directory / name for name in ("allocations", "images", "leases"))
        make_private_directory(leases)
        # QEMU's users open the files of their guest by name, and can list nothing.
        for folder in (directory, allocations, images):
            folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            folder.chmod(0o711)
        self._hypervisor = Hypervisor(uri, allocations)
        self._leases = Leases(leases, limits.lease_seconds)
        self._images = ImageCache(images, limits.images)
        self._node = Node(
            limits, allocations, self._leases, self._images, self._hypervisor, self.cleanup, self.tend_leases,
            Placing(limits.placement), TakenDevices(directory / "devices"),
            FirstBoots(self._hypervisor.channel, processes_of),
        )  # fmt: skip
        self._slots_file, self._gpus = directory / SLOTS_FILE, gpus
        self._node.disk_pool = None if disk_pool is None else DiskPool(disk_pool, allocations)
        if policy is not None:
            span = Span(policy.uplink, directory / "networks.json") if policy.uplink is not None else None
            names = NameServers(directory / "networks", policy.naming, policy.mtu)
            self._node.networks = TenantNetworks(policy, self._node.guests_in_networks, span, names)
            self._node.network_domain = policy.naming.domain if policy.naming is not None else None
            self._node.network_mtu = policy.uplink.mtu if policy.uplink is not None else None
        self._under_way = UnderWay()

    async def start(self) -> None:
        """End what an earlier agent left under way; find out whether KVM runs guests. Raises CannotStart."""
        await in_thread(partial(end_strays, self._node.allocations, partial(kill_all, program=b"qemu-img")))
        self._images.forget_partial()
        await in_thread(partial(require_pool, self._node.disk_pool, self._node.directories()))
        # Before libvirt: guests run without it too.
        await self._start_networks()
        try:
            await self._hypervisor.owners()
        except OSError as error:
            raise CannotStart(f"libvirt cannot be reached: {error}; is libvirtd started?") from error
        try:
            await in_thread(partial(look_at_host, self._node, self._slots_file, self._gpus))
        except OSError as error:
            raise CannotStart(f"the GPUs of the slots: {error}") from error
        self._node.accelerator = "kvm" if await in_thread(kvm_boots) else "qemu"
        log.info("hypervisor", accelerator=self._node.accelerator)

    async def _start_networks(self) -> None:
        if self._node.networks is not None:
            await self._node.networks.start()
        elif left := self._node.guests_in_networks():
            raise CannotStart(
                f"{len(left)} guests of this node have tenant networks; set BERTH_LIBVIRT_NETWORK=bridge until they are released"
            )

    async def resume(self) -> list[UUID]:
        """Adopt guests that run, and start those again that should run."""
        places = asyncio.Semaphore(STARTS_AT_ONCE_MAX)

        async def started(directory: GuestDirectory) -> bool:
            async with places:
                try:
                    await Boot(self._node, directory).all()
                except (DriverFailure, OSError) as error:
                    log.error("guest_not_started_again", allocation=directory.path.name, why=str(error))
                    return False
                return True

        should_run = {
            record.allocation_id: directory
            for directory in self._node.directories()
            if (record := directory.load()) is not None and record.state == "running"
        }
        dead = {held for held, directory in should_run.items() if not processes_of(directory.path)}
        for adopted in should_run.keys() - dead:
            await self._node.first_boots.listen(should_run[adopted])
        left_ended = {held for held in dead if not self._starts_again(should_run[held])}
        dead -= left_ended
        failed = {
            held
            for held, is_up in zip(
                dead, await asyncio.gather(*(started(should_run[held]) for held in dead)), strict=True
            )
            if not is_up
        }
        return [held for held in should_run if held not in failed | left_ended]

    async def restart(self, allocation_id: UUID) -> bool:
        """Start the guest again on its disk. Raises DriverFailure, OSError."""
        directory = self._node.directory(allocation_id)
        if allocation_id in self._under_way or not self._starts_again(directory):
            return False
        with self._under_way.scope(allocation_id)():
            await Boot(self._node, directory).all()
        return True

    def provision(self, order: ProvisionOrder) -> Plan[ProvisionResult]:
        """Lease, image, disk, seed, boot, ready message, SSH.

        Raises DriverFailure for a network that this agent has not, and for a size that the slots do not give.
        """
        if order.parameters.network is not None and self._node.networks is None:
            raise DriverFailure(
                FailureCode.TASK_REFUSED, "the task names a tenant network; set BERTH_LIBVIRT_NETWORK=bridge"
            )
        require_size(self._node, order.parameters.slots, order.parameters.guest_size)
        up = Provisioning(self._node, order)
        return Plan((up.lease(), *up.guest()), up.result, self._under_way.scope(order.allocation_id))

    def release(self, order: ReleaseOrder) -> Plan[ReleaseResult]:
        """Stop gracefully, then hard; wipe; drop the leases; say what is proven of each.

        While nothing is known of the disk of a guest that was up, directory and leases stay, and each attempt fails.
        """
        directory = self._node.directory(order.allocation_id)
        removal = GuestRemoval(self._node, directory, order.parameters.graceful_seconds, must_prove=True).plan()
        return Plan(removal.phases, removal.result, self._under_way.scope(order.allocation_id))

    def verb(self, order: VerbOrder) -> Plan[VerbResult]:
        """Reboot, stop, start, rebuild."""
        directory, scope = self._node.directory(order.allocation_id), self._under_way.scope(order.allocation_id)
        leased = order.allocation_id in {lease.allocation_id for lease in self._leases.held().values()}
        if directory.load() is None and not (order.verb is Verb.REBUILD and leased):
            raise DriverFailure(FailureCode.TASK_REFUSED, f"nothing is held of allocation {order.allocation_id}")
        removal = self._removal(order.allocation_id, order.graceful_seconds)
        if order.verb is not Verb.REBUILD:
            restart = Restart(self._node, directory, removal)
            return Plan(restart.phases(order.verb), restart.result, scope)
        if order.parameters is None:
            raise DriverFailure(FailureCode.TASK_REFUSED, "a rebuild needs the parameters of the new guest")
        require_size(self._node, order.parameters.slots, order.parameters.guest_size)
        up = Provisioning(self._node, ProvisionOrder(order.allocation_id, order.fence, order.parameters))

        def rebuilt() -> VerbResult:
            # A node may have got a pool since: the new disk has another name, which its release is to prove.
            evidence = {"devices": up.given(), **up.devices().evidence()}
            return VerbResult(connection=up.connection(), evidence=evidence)

        return Plan(rebuild_phases(removal, up), rebuilt, scope)

    async def cleanup(self, allocation_id: UUID) -> None:
        """Release without grace. Raises DriverFailure(CLEANUP_FAILED)."""
        removal = self._removal(allocation_id, 0.0).plan()
        await perform(Plan(removal.phases, removal.result, self._under_way.scope(allocation_id)), Unheard())

    async def inventory(self) -> Inventory:
        """What directories, leases, domains and processes say; a paused guest is down. Raises OSError without libvirt."""
        owners, paused = await self._hypervisor.owners(), await self._hypervisor.paused()
        domains = [Held(owner.allocation_id, owner.slots, owner.fence, GuestState.UNKNOWN) for owner in owners]
        domains += [Held(one, (), None, GuestState.UNKNOWN) for one in self._node.taken.all()]
        domains += await in_thread(partial(held_in, self._node.disk_pool))
        return await in_thread(
            lambda: take_inventory(
                self._node.directories(),
                self._leases,
                lambda found: found.allocation_id not in paused and bool(processes_of(found.path)),
                domains,
            )
        )

    async def tend_leases(self) -> list[int]:
        """See `Leases.tend`; in use is what has a directory, domain, GPU or task under way. Raises OSError.

        Networks first, and whether libvirt answers or not; a network that cannot be restored keeps no lease from being renewed.
        """
        await self._tend_networks()
        held = {owner.allocation_id for owner in await self._hypervisor.owners()} | set(self._node.taken.all())
        held |= {one.allocation_id for one in await in_thread(partial(held_in, self._node.disk_pool))}

        def in_use(allocation_id: UUID) -> bool:
            there = self._node.directory(allocation_id).exists() or allocation_id in held
            return there or allocation_id in self._under_way

        cleared = self._leases.tend(in_use)
        for slot, lease in cleared.items():
            log.warning("lease_cleared", slot=slot, allocation_id=str(lease.allocation_id) if lease else None)
        return list(cleared)

    async def _tend_networks(self) -> None:
        if self._node.networks is not None:
            try:
                await self._node.networks.tend()
            except OSError as error:
                log.error("tenant_networks_not_restored", why=str(error))

    def disk_space(self) -> DiskSpace | None:
        """See `Storing`."""
        state = self._node.disk_pool.state if self._node.disk_pool is not None else None
        return None if state is None else state.space

    def note_other_nodes(self, networks: Sequence[SpannedNetwork]) -> bool:
        """See `Spanning`."""
        return self._node.networks is not None and self._node.networks.note_other_nodes(networks)

    async def topology(self) -> Topology:
        """See `node_agent.discovery`."""
        return await discover(self.name)

    async def answers(self, allocation_id: UUID) -> bool:
        """See `Answering`."""
        record = self._node.directory(allocation_id).load()
        if record is None or record.port is None:
            return False
        return await greets(self._node.limits.host, record.port, GREETING_SECONDS)

    async def console(self, allocation_id: UUID, offset: int, bytes_max: int) -> ConsoleText:
        """What the guest wrote to its serial port, and virtlogd kept."""
        directory = self._node.directory(allocation_id)
        if not directory.exists():
            raise LookupError(f"no guest runs for allocation {allocation_id}")
        try:
            return read_log(directory.console_log, offset, bytes_max)
        except FileNotFoundError:
            return ConsoleText(0, b"")

    @asynccontextmanager
    async def attach(self, allocation_id: UUID) -> AsyncIterator[int]:
        """The guest's serial port, through libvirtd. Raises OSError while another client has it open."""
        console = await self._hypervisor.console(allocation_id)
        try:
            yield console.descriptor
        finally:
            await in_thread(console.close)

    async def stop(self, grace_seconds: float) -> None:
        """End every guest, all at once; their records still say that they should run."""
        await self.close()

        async def end(directory: GuestDirectory) -> None:
            if directory.allocation_id is not None:
                await GuestRemoval(self._node, directory, grace_seconds).end()

        guests = self._node.directories()
        for guest, problem in zip(guests, await asyncio.gather(*map(end, guests), return_exceptions=True), strict=True):
            if isinstance(problem, OSError | StillThere):
                log.error("guest_not_stopped", allocation=guest.path.name, why=str(problem))
            elif isinstance(problem, BaseException):
                raise problem

    async def close(self) -> None:
        """End the listeners, and let another agent of this host have the networks; guests go on."""
        await self._node.first_boots.close()
        if self._node.networks is not None:
            self._node.networks.close()

    @staticmethod
    def _starts_again(directory: GuestDirectory) -> bool:
        record = directory.load()
        return record is not None and record.starts_again

    def _removal(self, allocation_id: UUID, grace_seconds: float) -> GuestRemoval:
        return GuestRemoval(self._node, self._node.directory(allocation_id), grace_seconds)
