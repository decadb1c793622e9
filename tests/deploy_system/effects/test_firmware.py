"""Inspection and wipe report the versions that SMBIOS and sysfs state, and nothing that was not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.deploy_system.effects import ethtool, lldp, wiping
from node_agent.deploy_system.effects.firmware import read_firmware
from node_agent.deploy_system.effects.inspecting import inspect
from node_agent.deploy_system.effects.wiping import wipe
from node_agent.discovery.reading import Gaps
from node_agent.wire.deploy_tasks import (
    FIRMWARE_MAX,
    FirmwareVersion,
    MetalInspectParameters,
    MetalWipeParameters,
)
from tests.deploy_system.effects.machines import Machine, identity


def state(machine: Machine, path: str, text: str) -> None:
    file = machine.root / "sys" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def furnished(machine: Machine) -> list[tuple[str, str, str | None, str]]:
    """A machine with BIOS, two disks and an adapter that state versions; what is to be read."""
    state(machine, "class/dmi/id/bios_vendor", "Contoso")
    state(machine, "class/dmi/id/bios_version", "2.19.1")
    machine.add_disk("nvme0n1", "N1")
    state(machine, "block/nvme0n1/device/model", "Fast 1")
    state(machine, "block/nvme0n1/device/firmware_rev", "GDC5902Q")
    machine.add_disk("sda", "S1")
    state(machine, "block/sda/device/rev", "2.5+")
    add_port(machine, "eth0", "0000:0f:00.0")
    (machine.root / "sys/class/net/lo").mkdir()
    return [
        ("bios", "smbios", "Contoso", "2.19.1"), ("disk", "N1", "Fast 1", "GDC5902Q"), ("disk", "S1", None, "2.5+"),
        ("nic", "0000:0f:00.0", "15b3:1021", "28.39.1002 (MT_0000000838)"),
    ]  # fmt: skip


def add_port(machine: Machine, name: str, address: str) -> None:
    """A port of an adapter at this PCI address."""
    state(machine, f"devices/{address}/vendor", "0x15b3")
    state(machine, f"devices/{address}/device", "0x1021")
    (machine.root / "sys/class/net" / name).mkdir()
    (machine.root / "sys/class/net" / name / "device").symlink_to(machine.root / "sys/devices" / address)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver of every port states this version."""
    monkeypatch.setattr(ethtool, "firmware_of", lambda name: "28.39.1002 (MT_0000000838)")


def shown(found: list[FirmwareVersion] | None) -> list[tuple[str, str, str | None, str]]:
    assert found is not None
    return [(one.component, one.unit, one.model, one.version) for one in found]


@pytest.mark.usefixtures("driver")
def test_inspection_and_wipe_report_the_same_versions(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = furnished(machine)
    monkeypatch.setattr(lldp, "hear_neighbours", lambda host, seconds: [])
    inspected = inspect(machine.host, MetalInspectParameters(deploy_epoch=1), machine.progress, machine.root)
    assert shown(inspected.firmware) == expected
    parameters = MetalWipeParameters(deploy_epoch=1, disks=[identity("N1"), identity("S1")])
    assert shown(wipe(machine.host, parameters, machine.progress).firmware) == expected


def test_what_states_no_version_or_no_name_is_left_out(machine: Machine) -> None:
    assert read_firmware(machine.host, Gaps()) == []
    machine.add_disk("sda", None)
    state(machine, "block/sda/device/rev", "2.5+")
    machine.add_disk("sdb", "S2")
    state(machine, "block/sdb/device/rev", "")
    add_port(machine, "no-such-port", "0000:0f:00.0")
    assert read_firmware(machine.host, Gaps()) == []


def test_a_driver_states_a_version_or_none() -> None:
    def written(version: bytes) -> bytes:
        return ethtool.DRVINFO.pack(3, b"mlx5_core", b"6.1.0", version, b"0000:0f:00.0", b"", b"", 0, 0, 0, 0, 0)

    assert ethtool.DRVINFO.size == 196, "struct ethtool_drvinfo"
    assert ethtool.stated(written(b"28.39.1002 (MT_0000000838)")) == "28.39.1002 (MT_0000000838)"
    assert ethtool.stated(written(b"v" * 32)) == "v" * 32
    assert [ethtool.stated(written(text)) for text in (b"", b"N/A", b" ")] == [None] * 3
    assert ethtool.firmware_of("no-such-port") is None
    assert ethtool.firmware_of("lo") is None


def test_versions_are_bounded(machine: Machine) -> None:
    for number in range(FIRMWARE_MAX + 1):
        machine.add_disk(f"sd{number}", f"S{number}")
        state(machine, f"block/sd{number}/device/rev", "1")
    gaps = Gaps()
    assert len(read_firmware(machine.host, gaps)) == FIRMWARE_MAX
    assert [gap.subject for gap in gaps.all()] == ["firmware"]


def test_the_proof_of_a_wipe_comes_before_the_versions(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    furnished(machine)
    monkeypatch.setattr(wiping, "REPORT_BYTES_MAX", 300)
    parameters = MetalWipeParameters(deploy_epoch=1, disks=[identity("N1"), identity("S1")])
    report = wipe(machine.host, parameters, machine.progress)
    assert report.firmware is None
    assert all(disk.proven for disk in report.disks)
    assert [gap.subject for gap in report.gaps] == ["firmware"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without disks."""
    return Machine(tmp_path / "machine")
