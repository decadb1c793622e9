"""What keeps a GPU of the host from a guest: each lack by files of sysfs, with a remedy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from node_agent.drivers.libvirt.vfio.judging import (
    REMEDIES,
    Lack,
    VfioNotReady,
    has_module,
    node_objection,
    objections,
    see,
)
from tests.libvirt_driver.vfio.kernel import BRIDGE, CONFIG, GPUS, SOUND, Kernel


def lacks(root: Path, *addresses: str) -> list[Lack]:
    """What is found of these functions, given to one guest together."""
    found = objections([see(root, one) for one in addresses], module=has_module(root))
    if found:
        assert all(REMEDIES[one.lack] in str(VfioNotReady(found)) for one in found)
    return [one.lack for one in found]


def test_a_gpu_alone_in_its_group_is_ready_with_the_functions_of_its_card(tmp_path: Path) -> None:
    Kernel(tmp_path)
    assert lacks(tmp_path, GPUS[0]) == lacks(tmp_path, GPUS[1]) == []


def test_a_group_is_given_whole_or_not_at_all(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    assert lacks(tmp_path, GPUS[2]) == [Lack.GROUP_SHARED]
    assert lacks(tmp_path, GPUS[2], GPUS[3]) == [], f"the bridge {BRIDGE} in the group is no device"
    why = objections([see(tmp_path, GPUS[2])], module=True)
    assert why[0].found == f"{GPUS[2]} shares IOMMU group 42 with {GPUS[3]} (nvidia)"
    kernel.add("0000:0f:01.0", group=40, home=None, kind="0x020000")
    assert lacks(tmp_path, GPUS[0]) == [Lack.GROUP_SHARED], "another card in it, even without a driver"


def _module(kernel: Kernel) -> None:
    shutil.rmtree(kernel.root / "sys/bus/pci/drivers/vfio-pci")


def _iommu(kernel: Kernel) -> None:
    (kernel.device(GPUS[1]) / "iommu_group").unlink()


def _silent(kernel: Kernel) -> None:
    (kernel.device(GPUS[1]) / "config").write_bytes(b"\xff" * 64)


def _resets(kernel: Kernel) -> None:
    (kernel.device(GPUS[1]) / "reset").unlink()


def _held(kernel: Kernel) -> None:
    (kernel.device(GPUS[1]) / "driver").unlink()
    (kernel.device(GPUS[1]) / "driver").symlink_to(kernel.root / "sys/bus/pci/drivers/nvme")


def _held_beside(kernel: Kernel) -> None:
    kernel.add("0000:2d:00.1", group=41, home="nvme", kind="0x0c0330")


def _used(kernel: Kernel) -> None:
    information = kernel.root / f"proc/driver/nvidia/gpus/{GPUS[1]}/information"
    information.parent.mkdir(parents=True)
    information.write_text("Model: \t\t NVIDIA H100\nDevice Minor: \t 1\n")
    kernel.open_by_process("/dev/nvidia1")


def _used_by_vfio(kernel: Kernel) -> None:
    (kernel.device(GPUS[1]) / "driver").unlink()
    (kernel.device(GPUS[1]) / "driver").symlink_to(kernel.root / "sys/bus/pci/drivers/vfio-pci")
    kernel.open_by_process("/dev/vfio/41")


@pytest.mark.parametrize(
    ("damage", "lack"),
    [
        (lambda kernel: kernel.remove(GPUS[1]), Lack.DEVICE_MISSING), (_module, Lack.MODULE_MISSING),
        (_iommu, Lack.IOMMU_OFF), (_silent, Lack.DEVICE_SILENT), (_resets, Lack.RESET_MISSING),
        (_held, Lack.DRIVER_HOLDS), (_held_beside, Lack.DRIVER_HOLDS), (_used, Lack.DEVICE_IN_USE),
        (_used_by_vfio, Lack.DEVICE_IN_USE),
    ],
    ids=["missing", "module", "iommu", "silent", "reset", "driver", "driver beside", "in use", "in use by a guest"],
)  # fmt: skip
def test_each_lack_is_found(tmp_path: Path, damage: Callable[[Kernel], None], lack: Lack) -> None:
    kernel = Kernel(tmp_path)
    assert lacks(tmp_path, GPUS[1]) == []
    damage(kernel)
    assert lacks(tmp_path, GPUS[1]) == [lack]


def test_a_process_at_another_gpu_of_the_driver_does_not_matter(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    _used(kernel)
    assert lacks(tmp_path, GPUS[0]) == []


def test_functions_of_a_card_are_taken_from_the_drivers_that_sysfs_names(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    for function, home in ((1, "snd_hda_intel"), (2, "xhci_hcd"), (3, "nvidia-gpu")):
        kernel.add(f"0000:2d:00.{function}", group=41, home=home, kind="0x0c8000")
    assert lacks(tmp_path, GPUS[1]) == [], "the module i2c_nvidia_gpu registers its driver as nvidia-gpu"


def test_the_file_of_the_group_must_open(tmp_path: Path) -> None:
    Kernel(tmp_path)
    closed = node_objection(tmp_path, "41")
    assert closed is not None
    assert closed.lack is Lack.NODE_CLOSED
    (tmp_path / "dev/vfio/41").touch()
    assert node_objection(tmp_path, "41") is None


def test_every_lack_has_a_remedy() -> None:
    assert set(REMEDIES) == set(Lack)
    assert CONFIG[:2] == b"\xde\x10"
    assert os.path.basename(SOUND) == SOUND  # noqa: PTH119 - an address is a name
