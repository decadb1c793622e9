"""What a guest gets of its host, and its start with it: GPUs bound, huge pages counted, then define and start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from node_agent.drivers.contract import DriverFailure
from node_agent.drivers.leases import listed
from node_agent.drivers.libvirt.host_slots import remembered_gpus
from node_agent.drivers.libvirt.huge_pages import HugePagesShort
from node_agent.drivers.libvirt.placing import PlacedGuest
from node_agent.drivers.libvirt.sizing import SizeUnavailable
from node_agent.drivers.libvirt.vfio.judging import HOST_DRIVERS, Lack, Objection, VfioNotReady
from node_agent.drivers.libvirt.vfio.passing import PassedGpus
from node_agent.problems import CannotStart
from node_agent.protocol import FailureCode
from node_agent.wire.guests import GuestSize

if TYPE_CHECKING:
    from node_agent.drivers.libvirt.node import Node
    from node_agent.drivers.libvirt.records import GuestDirectory, GuestRecord


@dataclass(frozen=True)
class GpuSettings:
    """Of an agent with `BERTH_LIBVIRT_GPUS=vfio`. `are_returned`: the host's driver gets GPUs back between guests.

    `addresses`: the GPUs by slot, in place of those that are found; tests name stand-ins.
    """

    are_returned: bool = True
    addresses: tuple[str, ...] = ()
    host_drivers: frozenset[str] = HOST_DRIVERS


def look_at_host(node: Node, slots_file: Path, gpus: GpuSettings | None) -> None:
    """Find out what the slots of the host are, and which GPUs guests get. Raises CannotStart, OSError."""
    if gpus is None and (held := list(node.taken.all())):
        raise CannotStart(
            f"{len(held)} guests of this node have GPUs; set BERTH_LIBVIRT_GPUS=vfio until they are released"
        )
    root = node.limits.placement.root
    known = remembered_gpus(slots_file, root, are_passed=gpus is not None)
    node.placing.look(known)
    if gpus is not None:
        addresses = gpus.addresses or tuple(one.address for one in known.gpus)
        if not addresses:
            raise CannotStart("BERTH_LIBVIRT_GPUS=vfio, and this host has no GPU")
        _require_same_gpus(addresses, node.records(), slots_file)
        node.gpus = PassedGpus(
            node.taken, addresses, gpus.are_returned, root=root, host_drivers=gpus.host_drivers
        )  # fmt: skip


def _require_same_gpus(addresses: Sequence[str], records: Iterable[GuestRecord], slots_file: Path) -> None:
    """Raise CannotStart if a guest has other GPUs than its slots mean: a slot's next guest would get one of them."""
    for record in records:
        meant = [addresses[slot] for slot in sorted(record.slots) if slot < len(addresses)]
        if record.gpus and record.gpus != meant:
            raise CannotStart(
                f"the guest of allocation {record.allocation_id} has the GPUs {', '.join(record.gpus)}, and its slots"
                f" {listed(record.slots)} mean {', '.join(meant) or 'none'}; put back the {slots_file} that it began under"
                " until it is released"
            )


class GivenToGuest(PlacedGuest):
    """The members of a guest's record that say what it gets of this host, with its GPUs by PCI address."""

    gpus: list[str]


def require_size(node: Node, slots: list[int], size: GuestSize | None) -> None:
    """Raise DriverFailure if these slots do not give a guest this size: before anything is written."""
    try:
        node.placing.sized(slots, size)
    except SizeUnavailable as error:
        raise DriverFailure(FailureCode.GUEST_SIZE_UNAVAILABLE, str(error)) from error


def given(node: Node, slots: list[int], size: GuestSize | None) -> GivenToGuest:
    """What a new guest gets of this host. Raises DriverFailure."""
    try:
        others = node.records()
        placed = node.placing.place(slots, others, size)
        gpus = node.gpus.of_slots(slots) if node.gpus is not None else []
        _require_no_owner(gpus, others)
        return {**placed, "gpus": gpus}
    except SizeUnavailable as error:
        raise DriverFailure(FailureCode.GUEST_SIZE_UNAVAILABLE, str(error)) from error
    except VfioNotReady as error:
        raise DriverFailure(FailureCode.VFIO_HOST_NOT_READY, str(error)) from error
    except OSError as error:
        raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, str(error)) from error


def _require_no_owner(gpus: Sequence[str], others: Iterable[GuestRecord]) -> None:
    """Raise VfioNotReady if another guest's record names one: it need not have started yet."""
    owners = {address: one.allocation_id for one in others for address in one.gpus}
    if why := [Objection(Lack.DEVICE_TAKEN, f"allocation {owners[one]} has {one}") for one in gpus if one in owners]:
        raise VfioNotReady(why)


async def require_gpus(node: Node, allocation_id: UUID, slots: list[int], *, may_run: bool = False) -> None:
    """Raise DriverFailure if the GPUs of these slots cannot be given to this guest now: before an image is fetched.

    `may_run`: an earlier guest of the allocation has not been ended yet.
    """
    if node.gpus is None:
        return
    try:
        await node.gpus.require_ready(allocation_id, node.gpus.of_slots(slots), may_run=may_run)
    except VfioNotReady as error:
        raise DriverFailure(FailureCode.VFIO_HOST_NOT_READY, str(error)) from error
    except OSError as error:
        raise DriverFailure(FailureCode.DRIVER_ERROR, f"what guests have of GPUs is not known: {error}") from error


async def start_guest(node: Node, directory: GuestDirectory, record: GuestRecord, xml: str) -> None:
    """Start it with everything that its record names. Raises DriverFailure, OSError."""
    try:
        if record.gpus:
            if node.gpus is None:
                raise OSError("the guest has GPUs, and this agent has BERTH_LIBVIRT_GPUS=none")
            await node.gpus.take(record.allocation_id, record.gpus)
        async with node.placing.lock if record.huge_page_kib else nullcontext():
            node.placing.require_memory(record)
            await node.hypervisor.define(record.allocation_id, xml)
            await node.first_boots.cease(record.allocation_id)  # QEMU serves one client of the channel at a time
            await node.hypervisor.start(record.allocation_id, directory.key.read_bytes())
    except VfioNotReady as error:
        raise DriverFailure(FailureCode.VFIO_HOST_NOT_READY, str(error)) from error
    except HugePagesShort as error:
        raise DriverFailure(FailureCode.HUGE_PAGES_SHORT, str(error)) from error
