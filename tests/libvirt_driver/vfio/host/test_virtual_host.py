"""Devices of a host in guests, by a real kernel with an emulated IOMMU: binding, groups, reset, a guest with its device."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.libvirt_harness import IMAGE_VARIABLE

pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(1300)]

ROOT = Path(__file__).parents[4]
HOST = Path(__file__).parent / "virtual-host"
KERNEL_DIRECTORY = ROOT / "build" / "guests" / "virtual-host"
NEEDED = ("/usr/lib/qemu/virtiofsd", "/usr/bin/qemu-system-x86_64", "/usr/bin/apt-get")
LIFE = "tests.libvirt_driver.vfio.host.life_with_a_gpu"


def shown(command: str, iommu: str = "on") -> dict[str, Any]:
    """What the command says on the virtual node."""
    absent = [path for path in NEEDED if not Path(path).exists()]
    if os.getuid() != 0 or absent or shutil.which("mkfs.ext4", path="/sbin:/usr/sbin") is None:
        pytest.skip(f"no virtual node can run: {', '.join(absent) or 'it needs root and e2fsprogs'}")
    environment = {**os.environ, "IOMMU": iommu, "SECONDS_MAX": "1200"}
    done = subprocess.run(
        [str(HOST), str(KERNEL_DIRECTORY), f"cd {ROOT}; {command}"], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    said = [line.removeprefix("said ") for line in done.stdout.splitlines() if line.startswith("said ")]
    assert said, f"{done.stdout[-3000:]}{done.stderr[-1000:]}"
    found: dict[str, Any] = json.loads(said[-1])
    return found


def test_the_kernel_binds_whole_groups_and_gives_them_back_reset() -> None:
    said = shown(f"mkdir /var/tmp/k; .venv/bin/python -m {LIFE} /var/tmp/k kernel")
    assert said["refused"] == ["vfio_group_shared"]
    assert said["taken"] == ["nvme", "nvme", "vfio-pci", "vfio-pci"]
    assert said["viable"] is True
    assert said["returned"] == ["nvme"] * 4
    assert [proof["device"] for proof in said["proofs"]] == said["gpus"][2:]
    assert {(proof["method"], proof["proven"]) for proof in said["proofs"]} == {("reset: flr", True)}


def test_a_host_without_an_iommu_is_refused() -> None:
    said = shown(f"mkdir /var/tmp/k; .venv/bin/python -m {LIFE} /var/tmp/k kernel", iommu="off")
    assert "vfio_iommu_off" in said["refused"]


def test_a_guest_runs_with_the_device_of_its_slot_and_no_other() -> None:
    image = os.environ.get(IMAGE_VARIABLE)
    if image is None:
        pytest.skip("it runs in `make test-hardware`")
    said = shown(
        f"mkdir /var/tmp/g; {IMAGE_VARIABLE}={image} deploy/guests/private-libvirtd /var/tmp/lv "
        f".venv/bin/python -m {LIFE} /var/tmp/g guest"
    )
    gpu = said["gpus"][1]
    assert said["groups"] == [said["group"]], "QEMU has the group of this device open, and no other"
    assert [one["name"] for one in said["listed"]] == [f"gpu {gpu}"]
    assert said["listed"][0]["model"] == "vfio"
    assert (said["driver"], said["returned"]) == ("vfio-pci", "nvme")
    assert said["affinities"] == [1], "slot 1 has the processor of NUMA node 1"
    assert said["bound_memory"] > 0, "and its memory is of that node"
    assert {proof["kind"] for proof in said["proofs"]} == {"disk", "gpu"}
    assert all(proof["proven"] for proof in said["proofs"])
    assert said["held"] == []
