"""Firmware of each kind, disks of each kind, and which erase methods QEMU's disks refuse."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.metal.lab import Lab, deployed, wipe_order, wiped
from tests.metal.qemu import DISK_BYTES, Machine

pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("firmware", ["bios", "secure"])
def test_the_medium_boots_by_bios_and_with_secure_boot(lab: Lab, firmware: Literal["bios", "secure"]) -> None:
    # Firmware with system management mode keeps more memory for itself.
    machine = Machine(lab.directory, {"VIRTIO1": "virtio"}, firmware, memory_mib=512 if firmware == "secure" else 384)
    report = lab.inspected(machine)
    assert report.topology.firmware.boot_mode == ("bios" if firmware == "bios" else "uefi")
    assert report.secure_boot is (None if firmware == "bios" else True)
    assert (report.uefi_variables is None) == (firmware == "bios")


@pytest.mark.parametrize("serial", ["NVME1", "SATA1", "SCSI1"])
def test_each_kind_of_disk_is_deployed_and_wiped(lab: Lab, serial: str) -> None:
    disks: dict[str, Literal["nvme", "sata", "scsi", "virtio"]] = {"NVME1": "nvme", "SATA1": "sata", "SCSI1": "scsi"}
    machine = Machine(lab.directory, disks, "bios")
    report = lab.inspected(machine)
    order = lab.deploy_order(serial, lab.serve_mini_guest(), lab.tenant_key())
    first, second = lab.boot(machine, order, wipe_order(report, b"BERTH-MARKER"))
    assert deployed(first).boot_entry is None
    methods = {
        disk.serial: {attempt.method: attempt.accepted for attempt in disk.attempts} for disk in wiped(second).disks
    }
    assert methods == {
        "NVME1": {"nvme_format_user_data": True},
        "SATA1": {"discard_zero_out": True},
        "SCSI1": {"scsi_sanitize_crypto": False, "scsi_sanitize_block": False, "discard_zero_out": True},
    }
    for name in disks:
        assert machine.disk(name).read_bytes().count(0) == DISK_BYTES


def test_a_disk_that_inspection_did_not_see_fails_closed(lab: Lab) -> None:
    machine = Machine(lab.directory, {"VIRTIO1": "virtio", "NVME1": "nvme"}, "bios")
    report = lab.inspected(machine)
    machine.disks["LATER"] = "sata"
    with machine.disk("LATER").open("wb") as file:
        file.truncate(DISK_BYTES)
    with machine.disk("VIRTIO1").open("r+b") as file:
        file.write(b"kept")
    (refused,) = lab.boot(machine, wipe_order(report))
    assert refused["code"] == "disk_unknown"
    assert machine.disk("VIRTIO1").read_bytes()[:4] == b"kept"
