"""One guest with a device of the host, on a node of `virtual-host`: `python -m ...life_with_a_gpu DIR kernel|guest`.

Prints `said {...}`: what the real kernel, libvirt, QEMU and the guest have shown. The NVMe devices G1 to G4 stand for GPUs.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

from node_agent.drivers.choice import choose_driver
from node_agent.drivers.contract import Driver
from node_agent.drivers.libvirt.starting import GpuSettings
from node_agent.drivers.libvirt.vfio.judging import VfioNotReady
from node_agent.drivers.libvirt.vfio.passing import PassedGpus
from node_agent.drivers.libvirt.vfio.taken import TakenDevices
from node_agent.drivers.performing import Unheard, perform
from node_agent.settings import Settings
from tests.drivers.in_process import Node
from tests.drivers.libvirt_harness import LibvirtHarness
from tests.libvirt_driver.vfio.gpus import ALLOCATION

DEVICES = Path("/sys/bus/pci/devices")
NVME = "0x010802"
HOST_DRIVERS = frozenset({"nvme"})
VFIO_GROUP_GET_STATUS = 0x3B67
READINESS_SECONDS = 400.0


def stand_ins() -> tuple[str, ...]:
    """The addresses of G1 to G4."""
    found = {}
    for device in DEVICES.iterdir():
        for serial in device.glob("nvme/nvme*/serial"):
            found[serial.read_text().strip()] = device.name
    return tuple(found[f"G{number}"] for number in range(1, 5))


def driver_of(address: str) -> str | None:
    link = DEVICES / address / "driver"
    return link.readlink().name if link.is_symlink() else None


def is_viable(address: str) -> bool:
    """What VFIO itself says of the device's group."""
    group = (DEVICES / address / "iommu_group").readlink().name
    descriptor = os.open(f"/dev/vfio/{group}", os.O_RDWR)
    try:
        answer = bytearray(struct.pack("II", 8, 0))
        fcntl.ioctl(descriptor, VFIO_GROUP_GET_STATUS, answer)
        return bool(struct.unpack("II", answer)[1] & 1)
    finally:
        os.close(descriptor)


async def without_a_guest(directory: Path, gpus: tuple[str, ...]) -> dict[str, Any]:
    """Taking and giving back, against the real kernel."""
    passed = PassedGpus(TakenDevices(directory / "taken"), gpus, host_drivers=HOST_DRIVERS)
    said: dict[str, Any] = {}
    try:
        await passed.take(ALLOCATION, gpus[2:3])
    except VfioNotReady as error:
        said["refused"] = [one.lack for one in error.objections]
    if "refused" in said and "vfio_iommu_off" in said["refused"]:
        return said
    await passed.take(ALLOCATION, gpus[2:])
    said["taken"] = [driver_of(one) for one in gpus]
    said["viable"] = is_viable(gpus[2])
    said["proofs"] = [proof.model_dump(mode="json") for proof in await passed.give_back(ALLOCATION)]
    said["returned"] = [driver_of(one) for one in gpus]
    return said


class OnThisNode(LibvirtHarness):
    """Guests with stand-ins."""

    def __init__(self, directory: Path, gpus: tuple[str, ...]) -> None:
        self._guests, self._gpus = directory, gpus

    def directory(self, state_dir: Path) -> Path:
        return self._guests

    def driver(self, settings: Settings) -> Driver:
        changes = {
            "agent_driver": "libvirt", "guest_dir": self._guests, "guest_memory_bytes": 160 << 20, "guest_processors": 1,
            "guest_disk_bytes": 1 << 30, "agent_readiness_seconds": READINESS_SECONDS, "libvirt_gpus": "vfio",
            "libvirt_slots": 2, "libvirt_reserved_processors": "",
        }  # fmt: skip
        driver = choose_driver(settings.model_copy(update=changes))
        driver._gpus = GpuSettings(addresses=self._gpus, host_drivers=HOST_DRIVERS)  # type: ignore[attr-defined]
        return driver


async def with_a_guest(directory: Path, gpus: tuple[str, ...]) -> dict[str, Any]:
    """Provision until the guest runs, inspect it, release."""
    node = Node(OnThisNode(directory / "guests", gpus), directory)
    said: dict[str, Any] = {}
    await node.driver.start()
    order = node.order()
    order.parameters.slots[:] = [1]
    # As far as QEMU runs: the boot of a guest inside of an emulated host takes minutes.
    for phase in node.driver.provision(order).phases:
        await phase.run(lambda _share, _detail: None)
        if phase.name == "boot":
            break
    found = await node.driver._hypervisor.devices(order.allocation_id)  # type: ignore[attr-defined]
    said["listed"] = [one.model_dump() for one in found.devices if one.name.startswith("gpu ")]
    said["driver"] = driver_of(gpus[1])
    (pid,) = node.probe.processes()[order.allocation_id]
    opened = [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()]
    said["groups"] = sorted({name for name in opened if name.startswith("/dev/vfio/") and name != "/dev/vfio/vfio"})
    said["group"] = f"/dev/vfio/{(DEVICES / gpus[1] / 'iommu_group').readlink().name}"
    numa = Path(f"/proc/{pid}/numa_maps").read_text()
    said["bound_memory"] = sum(" bind:1 " in line for line in numa.splitlines())
    said["affinities"] = sorted(
        {min(os.sched_getaffinity(int(task.name))) for task in Path(f"/proc/{pid}/task").iterdir()}
    )
    released = await perform(node.release(order), Unheard())
    said["proofs"] = released.evidence["devices"]
    said["returned"] = driver_of(gpus[1])
    said["held"] = [str(held.allocation_id) for held in (await node.driver.inventory()).held]
    await node.driver.stop(0.0)
    return said


def main(directory: Path, part: str) -> None:
    """Print what was shown."""
    gpus = stand_ins()
    said = asyncio.run({"kernel": without_a_guest, "guest": with_a_guest}[part](directory, gpus))
    sys.stdout.write(f"said {json.dumps({'gpus': gpus, **said})}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
