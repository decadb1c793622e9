"""A machine's whole life on real firmware and disks of QEMU: inspected, deployed, used by a tenant, wiped."""

from __future__ import annotations

import socket

import pytest

from node_agent.wire.deploy_tasks import LldpNeighbour, MetalInspectReport
from tests.metal.lab import Lab, announcing, contains, deployed, wipe_order, wiped
from tests.metal.qemu import DISK_BYTES, SECOND_MAC, Machine

MARKER = b"TENANT-WAS-HERE-5be7b27e"
VARIABLE = "Tenant-be127400-0000-4000-8000-000000000001"
PLANT_VARIABLE = [
    "python3", "-c",
    f"open('/sys/firmware/efi/efivars/{VARIABLE}', 'wb').write(b'\\7\\0\\0\\0was here')",
]  # fmt: skip


@pytest.mark.hardware
@pytest.mark.timeout(1500)
def test_a_machine_is_inspected_deployed_used_and_wiped(lab: Lab) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        switch_port = free.getsockname()[1]
    machine = Machine(lab.directory, {"VIRTIO1": "virtio", "NVME1": "nvme", "SATA1": "sata"}, switch_port=switch_port)
    for serial in ("NVME1", "SATA1"):
        with machine.disk(serial).open("r+b") as file:
            file.seek(100 * 2**20)
            file.write(MARKER)

    image_bytes, key = lab.serve_mini_guest(), lab.tenant_key()
    with announcing(switch_port):
        first, second, _ = lab.boot(
            machine,
            {"kind": "inspect", "parameters": {"deploy_epoch": 1}},
            lab.deploy_order("VIRTIO1", image_bytes, key),
            {"kind": "run", "command": PLANT_VARIABLE},
        )
    report, deploy = MetalInspectReport.model_validate(first), deployed(second)
    found = {(disk.name[:2], disk.serial, disk.size_bytes) for disk in report.topology.disks or []}
    assert found == {("vd", "VIRTIO1", DISK_BYTES), ("nv", "NVME1", DISK_BYTES), ("sd", "SATA1", DISK_BYTES)}
    assert (report.storage_without_driver, report.secure_boot) == ([], False)
    assert report.neighbours == [
        LldpNeighbour(mac=SECOND_MAC, chassis_id="00:11:22:33:44:55", port_id="Ethernet1/4", system_name="leaf-1")
    ]
    assert (deploy.boot_entry or "").startswith("Boot")
    assert contains(machine.disk("NVME1"), MARKER), "a deploy touches no other disk than the root disk"

    lab.on_tenants_system(
        machine, deploy.host_key, f"echo {MARKER.decode()} | dd of=/dev/vda bs=1M seek=200 conv=notrunc,fsync"
    )
    assert contains(machine.disk("VIRTIO1"), MARKER)
    # The firmware took the entry and its partition; the test guest has no loader there, so the firmware's shell starts it.
    assert f'{deploy.boot_entry} "Berth" from HD(1,MBR,' in machine.console

    (third,) = lab.boot(machine, wipe_order(report, MARKER))
    wipe = wiped(third)
    assert all(disk.proven and disk.read_bytes == DISK_BYTES for disk in wipe.disks)
    assert {disk.serial: disk.method for disk in wipe.disks} == {
        "VIRTIO1": "discard_zero_out", "SATA1": "discard_zero_out", "NVME1": "nvme_format_user_data",
    }  # fmt: skip
    assert VARIABLE in wipe.variables_removed
    assert wipe.variables_remaining == []
    for serial in machine.disks:
        assert machine.disk(serial).read_bytes().count(0) == DISK_BYTES
