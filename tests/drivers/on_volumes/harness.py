"""The libvirt driver with disks on volumes under the suite: the same guests, on block devices."""

from __future__ import annotations

import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from node_agent.drivers.contract import Driver
from node_agent.settings import Settings
from tests.drivers.harness import Probe
from tests.drivers.harness import Tenant as AnyTenant
from tests.drivers.libvirt_harness import GUESTS, LibvirtHarness
from tests.drivers.libvirt_probe import LibvirtProbe, planted
from tests.drivers.on_volumes.loop_volumes import LoopVolumes
from tests.node_agent.agents import Tenant


class VolumeHarness(LibvirtHarness):
    """A node with `BERTH_LIBVIRT_DISK_POOL`; its volumes are loop devices."""

    name = "libvirt with volumes"
    marks = (pytest.mark.hardware, pytest.mark.full)

    def unavailable(self) -> str | None:
        if (reason := super().unavailable()) is not None:
            return reason
        found = subprocess.run(["losetup", "--find"], capture_output=True, text=True, check=False)
        return None if found.returncode == 0 else f"there are no loop devices: {found.stderr.strip()}"

    def driver(self, settings: Settings) -> Driver:
        volumes = self.volumes(settings.agent_state_dir)
        volumes.install()
        return super().driver(settings.model_copy(update={"libvirt_disk_pool": f"{volumes.group}/disks"}))

    def volumes(self, state_dir: Path) -> LoopVolumes:
        """Those of the node, beside its directory: QEMU reaches them as devices alone."""
        directory = self.directory(state_dir)
        return LoopVolumes(GUESTS / f"{directory.name}.lvm", f"berthloop{directory.name}")

    def clean(self, state_dir: Path) -> None:
        super().clean(state_dir)
        self.volumes(state_dir).remove()

    def probe(self, state_dir: Path, tenant: AnyTenant) -> Probe:
        assert isinstance(tenant, Tenant)
        return VolumeProbe(self.directory(state_dir), tenant, self.volumes(state_dir))


class VolumeProbe(LibvirtProbe):
    """Sees the volumes too, those without any file."""

    def __init__(self, directory: Path, tenant: Tenant, volumes: LoopVolumes) -> None:
        super().__init__(directory, tenant)
        self._volumes = volumes

    def there(self) -> set[UUID]:
        return super().there() | {UUID(name.removeprefix("berth-")) for name in self._volumes.names()}

    def snapshot(self) -> object:
        return super().snapshot(), self._volumes.names()

    def traces(self, marker: str) -> list[str]:
        opened = []
        for name in self._volumes.names():
            key = self._directory / "allocations" / name.removeprefix("berth-") / "disk.key"
            if marker in planted(self._volumes.volumes / name / "file", key):
                opened.append(f"{name}, decrypted")
        left = self._volumes.last
        if left.exists() and left.stat().st_size and _is_not_zero(left):
            opened.append("what the removed volume held")
        return [*super().traces(marker), *opened]


def _is_not_zero(file: Path) -> bool:
    with file.open("rb") as opened:
        return any(piece.strip(b"\0") for piece in iter(lambda: opened.read(1 << 20), b""))
