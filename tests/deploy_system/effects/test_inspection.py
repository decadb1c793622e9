"""Inspection names disks by what stays the same between boots, and what hides disks; the network is that of the medium."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from node_agent.deploy_system.effects import lldp, networking
from node_agent.deploy_system.effects.contract import ToolRun
from node_agent.deploy_system.effects.disks import found_disks
from node_agent.deploy_system.effects.inspecting import inspect
from node_agent.deploy_system.effects.lldp import Announcement, parse_frame
from node_agent.deploy_system.effects.networking import NoNetwork, bring_up
from node_agent.deploy_system.effects.steps import STEPS
from node_agent.deploy_system.effects.tools import run_tool
from node_agent.deploy_system.effects.uefi_variables import GLOBAL
from node_agent.wire.deploy_medium import MediumNetwork
from node_agent.wire.deploy_tasks import (
    REPORT_BYTES_MAX,
    UEFI_VARIABLES_MAX,
    LldpNeighbour,
    MetalInspectParameters,
    MetalInspectReport,
)
from tests.deploy_system.effects.machines import DISK_BYTES, Machine
from tests.discovery.trees import RecordedTree

NEIGHBOUR = LldpNeighbour(mac="52:54:00:00:00:01", chassis_id="switch", port_id="Ethernet4")


def inspected(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> MetalInspectReport:
    monkeypatch.setattr(lldp, "hear_neighbours", lambda host, seconds: [NEIGHBOUR])
    return inspect(machine.host, MetalInspectParameters(deploy_epoch=1), machine.progress, machine.root)


def test_the_unit_serial_comes_before_the_world_wide_name(machine: Machine) -> None:
    machine.add_disk(
        "sda", None, page_80="  QM00005 ", wwid="t10.ATA     QEMU HARDDISK                           QM00005 "
    )
    machine.add_disk("sdb", None, wwid="naa.5000c500a1b2c3d4")
    machine.add_disk("vda", "virtio-serial", wwid="something else")
    machine.add_disk("sdc", None)
    assert [(disk.name, disk.serial) for disk in found_disks(machine.host)] == [
        ("sda", "QM00005"), ("sdb", "naa.5000c500a1b2c3d4"), ("sdc", ""), ("vda", "virtio-serial"),
    ]  # fmt: skip


def test_what_is_no_disk_is_left_out_and_what_cannot_be_written_is_not(machine: Machine) -> None:
    for name in ("loop0", "sr0", "ram0", "zram0", "dm-0", "md0", "fd0", "nbd0"):
        machine.add_disk(name, name)
    machine.add_disk("sdb", "empty slot", size_bytes=0)
    machine.add_disk("nvme0c0n1", "path")
    (machine.root / "sys/block/nvme0c0n1/hidden").write_text("1\n")
    machine.add_disk("mmcblk0boot0", "boot part")
    machine.add_disk("sda", "read-only")
    (machine.root / "sys/block/sda/ro").write_text("1\n")
    assert [disk.name for disk in found_disks(machine.host)] == ["mmcblk0boot0", "sda"]


def test_a_whole_machine_is_inspected(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tree = RecordedTree(tmp_path / "recorded")
    tree.write("sys/class/dmi/id/product_uuid", "5BE7B27E-0000-4000-8000-000000000001\n")
    tree.write("sys/bus/pci/devices/0000:03:00.0/class", "0x010700\n")
    whole = Machine.__new__(Machine)
    whole.root, whole.tools, whole.ran, whole.said = tree.root, {}, [], []
    whole.stopped = machine.stopped
    whole.add_variable(f"BootOrder-{GLOBAL}", b"\0\0")
    whole.add_variable(f"SecureBoot-{GLOBAL}", b"\1", attributes=6)
    report = inspected(whole, monkeypatch)
    assert report.smbios_uuid == "5be7b27e-0000-4000-8000-000000000001"
    assert len(report.topology.gpus or []) == 8
    assert report.storage_without_driver == ["0000:03:00.0"]
    assert (report.secure_boot, report.neighbours) == (True, [NEIGHBOUR])
    assert [variable.name for variable in report.uefi_variables or []] == [f"BootOrder-{GLOBAL}"]
    assert len(report.canonical()) <= REPORT_BYTES_MAX


def test_what_the_machine_does_not_state_is_a_gap(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.add_disk("sda", None)
    report = inspected(machine, monkeypatch)
    assert (report.uefi_variables, report.secure_boot) == (None, None)
    assert {gap.subject for gap in report.gaps} == {"smbios_uuid", "sda"}
    assert [(disk.name, disk.serial, disk.size_bytes) for disk in report.topology.disks or []] == [
        ("sda", None, DISK_BYTES)
    ]


def test_more_variables_than_are_listed_are_a_gap(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(UEFI_VARIABLES_MAX + 1):
        machine.add_variable(f"V{number:04}-be127400-0000-4000-8000-000000000001", b"x")
    report = inspected(machine, monkeypatch)
    assert len(report.uefi_variables or []) == UEFI_VARIABLES_MAX
    assert "uefi_variables" in {gap.subject for gap in report.gaps}
    assert len(report.canonical()) <= REPORT_BYTES_MAX


def tlv(kind: int, value: bytes) -> bytes:
    return (kind << 9 | len(value)).to_bytes(2, "big") + value


HEADER = bytes.fromhex("0180c200000e 001122334455 88cc")
FRAME = (
    HEADER + tlv(1, b"\4\0\x11\x22\x33\x44\x55") + tlv(2, b"\5Ethernet1/4") + tlv(3, b"\0\x78")
    + tlv(5, b"leaf-1") + tlv(0, b"")
)  # fmt: skip


def test_an_announcement_names_switch_and_port() -> None:
    assert parse_frame(FRAME) == Announcement("00:11:22:33:44:55", "Ethernet1/4", "leaf-1")


@pytest.mark.parametrize(
    "frame",
    [
        b"", FRAME[:13], FRAME[:20], HEADER, HEADER + tlv(1, b"\4abc"), HEADER + tlv(2, b"\5port"),
        FRAME.replace(b"\x88\xcc", b"\x08\x00"), HEADER + b"\x02\xff" + b"x" * 10, HEADER + tlv(1, b"\7") + tlv(2, b"\5p"),
    ],
)  # fmt: skip
def test_what_is_no_whole_announcement_is_none(frame: bytes) -> None:
    assert parse_frame(frame) is None


def with_port(machine: Machine, mac: str = "52:54:00:00:00:01") -> None:
    port = machine.root / "sys/class/net/ens3"
    (port / "device").mkdir(parents=True)
    (port / "address").write_text(f"{mac}\n")
    (machine.root / "sys/class/net/lo").mkdir()
    (machine.root / "sys/class/net/lo/address").write_text("00:00:00:00:00:00\n")


def test_the_network_of_the_medium_is_set_up_on_its_port(machine: Machine) -> None:
    with_port(machine)
    machine.tools["ip"] = lambda command: ToolRun(0, "")
    network = MediumNetwork.model_validate(
        {"mac": "52:54:00:00:00:01", "address": "10.0.0.5/24", "gateway": "10.0.0.1", "vlan": 7, "mtu": 1500}
    )
    assert bring_up(machine.host, network) == "berth.7"
    assert [" ".join(command) for command in machine.ran] == [
        "ip link set dev ens3 mtu 1500 up",
        "ip link add link ens3 name berth.7 type vlan id 7",
        "ip link set dev berth.7 up",
        "ip address replace 10.0.0.5/24 dev berth.7",
        "ip -4 route replace default via 10.0.0.1 dev berth.7",
    ]


def test_a_port_that_is_not_there_or_a_refused_address_is_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networking, "PORT_SECONDS_MAX", -1.0)
    network = MediumNetwork.model_validate({"mac": "52:54:00:00:00:01", "address": "10.0.0.5/24"})
    with pytest.raises(NoNetwork, match="found: none"):
        bring_up(machine.host, network)
    with_port(machine)

    def refusing(command: Sequence[str]) -> ToolRun:
        return ToolRun(2, "RTNETLINK answers: Invalid argument") if "address" in command else ToolRun(0, "")

    machine.tools["ip"] = refusing
    with pytest.raises(NoNetwork, match="RTNETLINK"):
        bring_up(machine.host, network)


def test_a_program_that_is_missing_or_hangs_has_a_status() -> None:
    assert run_tool(["no-such-program"], 5).status == 127
    assert run_tool(["sleep", "60"], 0.05).status == 124
    assert run_tool(["sh", "-c", "echo said >&2; exit 3"], 5) == ToolRun(3, "said")


def test_every_step_ends() -> None:
    assert all(bounds.seconds > 0 for bounds in STEPS.values())
