"""A driver whose guests' disks are volumes, with stand-ins of libvirt and LVM: what it does with disks, without any guest."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from node_agent.drivers.contract import Phase, Verb, VerbOrder
from node_agent.drivers.images import ImageBounds
from node_agent.drivers.libvirt.disk_pool import guest_disks
from node_agent.drivers.libvirt.disk_pool.contents import PoolName, owner_tag, volume_name
from node_agent.drivers.libvirt.disk_pool.pool import DiskPool, PoolSettings
from node_agent.drivers.libvirt.disk_pool.zeroing import Zeroed
from node_agent.protocol import ProvisionParameters
from tests.libvirt_driver.definitions import ALLOCATION, guest
from tests.libvirt_driver.disk_pool.fake_lvm import GIB, row

NAME = volume_name(ALLOCATION)
VOLUME = f"vg0/{NAME}"
FILE = f"allocations/{ALLOCATION}/disk.qcow2"
PARAMETERS: dict[str, Any] = {
    "slots": [2, 3], "gpu_model": "H100", "ssh_public_keys": ["ssh-ed25519 AAAA"], "hostname": "guest",
    "image": {"name": "mini", "url": "file:///nowhere", "sha256": "0" * 64, "login_user": "berth"},
}  # fmt: skip


class NoGuests:
    """In place of libvirt: no guest runs."""

    async def is_active(self, _allocation_id: object) -> bool:
        """None does."""
        return False

    async def remove(self, _allocation_id: object) -> None:
        """There is nothing."""


class _Libvirt(ModuleType):
    """In place of its package: numbers, and an error that is never raised."""

    class libvirtError(Exception):  # noqa: N801 - the package's name
        """Not raised."""

    @staticmethod
    def registerErrorHandler(*_arguments: object) -> None:  # noqa: N802 - the package's name
        """Nothing is said."""

    def __getattr__(self, name: str) -> int:
        if not name.startswith("VIR_"):
            raise AttributeError(name)
        return 0


PACKAGES = {"libvirt": _Libvirt("libvirt"), "pycdlib": ModuleType("pycdlib")}
"""Those of requirements-libvirt.lock."""


@contextmanager
def packages_of_driver() -> Iterator[None]:
    """The driver can be imported without its packages; what was imported so is forgotten afterwards."""
    absent = {name: module for name, module in PACKAGES.items() if importlib.util.find_spec(name) is None}
    before = set(sys.modules)
    sys.modules.update(absent)
    try:
        yield
    finally:
        imported = {name for name in set(sys.modules) - before if name.startswith("node_agent.drivers.libvirt.")}
        for name in {*absent, *(imported if absent else ())}:
            del sys.modules[name]


def driver_in(directory: Path, pool: str | None) -> Any:
    """A driver of this directory. `pool`: the one of its disks, or None."""
    from node_agent.drivers.libvirt.driver import LibvirtDriver
    from node_agent.drivers.libvirt.node import LibvirtLimits
    from node_agent.drivers.libvirt.placing import PlacementSettings

    limits = LibvirtLimits(
        "127.0.0.1", 20_000, 20_010, 1.0, ImageBounds(GIB, 4, GIB), 60.0, GIB, 64_500, PlacementSettings(1, GIB)
    )
    directory.mkdir(exist_ok=True)
    settings = None if pool is None else PoolSettings(PoolName.of(pool))
    made: Any = LibvirtDriver(directory, "test:///default", limits, disk_pool=settings)
    made._node.hypervisor = NoGuests()
    return made


def guest_of(driver: Any, *, volume: str | None = None, file: bytes | None = None) -> Any:
    """The directory of a guest that runs, with its record, its key, and its disk or the name of its volume."""
    directory, record = guest(driver._node.allocations, state="running")
    directory.path.mkdir()
    directory.save(record)
    directory.key.write_bytes(b"key")
    if volume is not None:
        directory.note_volume(volume)
    if file is not None:
        directory.disk.write_bytes(file)
    return directory


def made_volume(driver: Any, **changes: str) -> dict[str, str]:
    """The row of the guest's volume, whole."""
    tags = f"berth.fence=7,berth.made,{owner_tag(driver._node.allocations)},berth.slots=2+3"
    values = {"lv_name": NAME, "lv_size": str(GIB), "pool_lv": "disks", "lv_tags": tags, "lv_active": "active"}
    return row(**{**values, **changes})


def no_devices(patch: pytest.MonkeyPatch) -> None:
    """Volumes have no device: their wipe is taken for done."""
    patch.setattr(DiskPool, "device", lambda _self, volume: Path("/dev/vg0") / volume)
    patch.setattr(guest_disks, "zero_volume", lambda *_arguments: Zeroed(4096, 4096, 4096, True))


def no_reset(driver: Any) -> None:
    """The GPUs of a guest cannot be reset."""

    async def give_back(_allocation_id: object) -> list[Any]:
        raise OSError("no reset")

    driver._node.gpus = SimpleNamespace(give_back=give_back)


async def run(phase: Phase) -> str:
    """Run a phase."""
    return await phase.run(lambda _share, _detail: None)


def rebuild_of(driver: Any) -> Any:
    """The plan of a rebuild of the guest."""
    parameters = ProvisionParameters.model_validate(PARAMETERS)
    return driver.verb(VerbOrder(ALLOCATION, 8, Verb.REBUILD, parameters, 0.0))


def no_overlays(patch: pytest.MonkeyPatch) -> None:
    """Disks are made without qemu-img: a file of a few bytes, and a volume of 1 GiB with nothing written to it."""
    patch.setattr(guest_disks, "full_bytes", lambda *_arguments: GIB)
    patch.setattr(guest_disks, "format_disk", lambda *_arguments: None)
