"""The checks of GPUs that guests get, by files of a host."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest

from node_agent.checks.finding import Code, Severity, severity_of
from node_agent.checks.host import check_start
from node_agent.checks.start import require_fit_host
from node_agent.checks.vfio import check_vfio, judge_fabric, judge_vfio
from node_agent.drivers.libvirt.vfio.judging import Lack, Seen
from node_agent.problems import CannotStart
from tests.libvirt_driver.choosing import settings
from tests.libvirt_driver.vfio.kernel import GPUS, Kernel


def test_every_lack_is_a_code_of_the_checks() -> None:
    assert {lack.value for lack in Lack} <= {code.value for code in Code}
    refusing = {lack for lack in Lack if severity_of(Code(lack.value)) is Severity.REFUSES}
    assert refusing == {
        Lack.DEVICE_MISSING, Lack.IOMMU_OFF, Lack.MODULE_MISSING, Lack.DRIVER_HOLDS, Lack.SYSFS_CLOSED, Lack.NODE_CLOSED,
    }  # fmt: skip


def test_gpus_of_one_group_are_a_warning_and_a_used_one_is_none(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    shared, fabric = check_vfio(tmp_path)
    assert (shared.code, fabric.code) == (Code.VFIO_GROUP_SHARED, None)
    assert all(one in shared.found for one in GPUS[2:])
    assert "ACS" in shared.remedy
    kernel.remove(GPUS[3])
    kernel.remove(GPUS[2])
    (tmp_path / "sys/kernel/iommu_groups/42/devices" / GPUS[2]).unlink()
    (kernel.device(GPUS[1]) / "driver").unlink()
    (kernel.device(GPUS[1]) / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/vfio-pci")
    kernel.open_by_process("/dev/vfio/41")
    assert check_vfio(tmp_path)[0].line() == "ok    vfio: each of 2 GPUs can be given to a guest"


def test_a_host_without_gpus_or_rights_is_refused(tmp_path: Path) -> None:
    assert [one.code for one in check_vfio(tmp_path)] == [Code.VFIO_DEVICE_MISSING, None]
    seen = [Seen(GPUS[0], True, "10de:2330", "nvidia", None, (), ("flr",)), Seen(GPUS[1], exists=False)]
    found = judge_vfio(seen, module=False, may_write=False)
    assert {one.code for one in found} == {
        Code.VFIO_SYSFS_CLOSED, Code.VFIO_MODULE_MISSING, Code.VFIO_IOMMU_OFF, Code.VFIO_DEVICE_MISSING,
    }  # fmt: skip
    assert not any(one.passed for one in found)


def test_an_agent_starts_where_no_guest_gets_a_gpu_to_release_those_that_are_there(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "host")
    (tmp_path / "agent").mkdir()
    lacks = [_objected(kernel.root)]
    (kernel.device(GPUS[1]) / "iommu_group").unlink()
    (kernel.device(GPUS[0]) / "driver").unlink()
    (kernel.device(GPUS[0]) / "driver").symlink_to(kernel.root / "sys/bus/pci/drivers/nvme")
    lacks.append(_objected(kernel.root))
    assert lacks == [set(), {Code.VFIO_IOMMU_OFF, Code.VFIO_DRIVER_HOLDS}]
    assert "FAIL" in {one.line().split()[0] for one in check_vfio(kernel.root)}, (
        "--check says that guests would not run"
    )
    with tempfile.TemporaryDirectory(dir="/var/tmp") as guests:
        Path(guests).chmod(0o711)
        chosen = settings(tmp_path, guest_dir=guests, libvirt_gpus="vfio")
        asyncio.run(require_fit_host(chosen, kernel.root))
        shutil.rmtree(kernel.root / "sys/bus/pci/drivers/vfio-pci")
        with pytest.raises(CannotStart, match="vfio_module_missing"):
            asyncio.run(require_fit_host(chosen, kernel.root))


def _objected(root: Path) -> set[Code | None]:
    return {one.code for one in check_vfio(root) if not one.passed}


def test_switches_that_nothing_manages_are_a_warning() -> None:
    finding = judge_fabric(["0000:07:00.0"])
    assert (finding.code, finding.passed) == (Code.FABRIC_UNMANAGED, True)
    assert "no NVLink" in finding.found


def test_gpus_are_checked_for_an_agent_whose_guests_get_them(tmp_path: Path) -> None:
    (tmp_path / "guests").mkdir()
    names = [
        {one.name for one in check_start(tmp_path, tmp_path / "guests", 64_500, tmp_path, gpus=gpus)}
        for gpus in ("none", "vfio")
    ]
    assert names[1] - names[0] == {"vfio", "fabric"}
