"""The agent's list of a guest's devices, read from what libvirt says of the live domain."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node_agent.drivers.libvirt.devices import devices_of
from node_agent.drivers.sandbox.provisioning import NO_DEVICES
from node_agent.wire.devices import DEVICES_MAX, EVIDENCE, GuestDevices, devices_in, unknown
from node_agent.wire.topology import REASON_MAX
from tests.libvirt_driver.definitions import defined
from tests.libvirt_driver.device_page import rows

# As libvirt 9.0 describes a running guest of this driver (virsh dumpxml), without what names no device.
LIVE = (Path(__file__).parent / "live_domain.xml").read_text()


def names(live_xml: str) -> set[str]:
    found = devices_of(live_xml)
    assert found.devices is not None, found.reason
    return {device.name for device in found.devices}


def test_a_recorded_guest_has_the_devices_of_the_page() -> None:
    found = devices_of(LIVE)
    assert found.devices is not None
    page = {row.name: (row.model or (None,))[0] for row in rows("Devices")}
    assert {device.name: device.model for device in found.devices} == page
    by_name = {device.name: device.address for device in found.devices}
    assert by_name["interface net0"] == "pci 0000:00:1e.0"
    assert by_name["channel berth.ready"] == "virtio-serial 0:0:1"
    assert by_name["serial 0"] is None


def test_every_row_says_why() -> None:
    tables = [*rows("Devices"), *rows("Ports"), *rows("What a guest does not have")]
    assert [row.name for row in tables if not row.why] == []


ADDED = {
    "<input type='tablet' bus='usb'/>": {"input tablet usb"},
    "<controller type='usb' index='0' model='qemu-xhci'/>": {"controller usb 0"},
    "<disk type='file' device='floppy'><target dev='fda' bus='fdc'/></disk>": {"disk fda"},
    "<graphics type='vnc' port='5900'/>": {"graphics 0"},
    "<video><model type='vga'/></video>": {"video 0"},
    "<sound model='ich9'/>": {"sound 0"},
    "<channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>": {"channel com.redhat.spice.0"},
    "<hostdev mode='subsystem' type='pci'/><hostdev mode='subsystem' type='pci'/>": {"hostdev 0", "hostdev 1"},
    "<memballoon model='virtio'/>": {"memballoon 0"},
    "<watchdog model='itco' action='reset'/>": {"watchdog 0"},
    "<filesystem type='mount'/>": {"filesystem 0"},
    "<audio id='2' type='spice'/>": {"audio 0"},
    "<anything/>": {"anything 0"},
}  # fmt: skip


@pytest.mark.parametrize("element", ADDED)
def test_another_device_is_listed(element: str) -> None:
    page = {row.name for row in rows("Devices")}
    assert names(LIVE.replace("</devices>", f"{element}</devices>")) - page == ADDED[element]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("-device", "usb-tablet,bus=x"), "device 6"),
        (("-device", '{"driver":"virtio-net-pci","netdev":"net1"}'), "interface net1"),
        (("-usb",), "argument 6"),
        (("-vga", "std"), "argument 6"),
    ],
)
def test_a_device_by_an_argument_of_qemu_is_listed(arguments: tuple[str, ...], name: str) -> None:
    domain = ET.fromstring(LIVE)
    line = domain.find("{http://libvirt.org/schemas/domain/qemu/1.0}commandline")
    assert line is not None
    # Three options before these, with their values.
    for value in ("-netdev", "user,id=a", "-machine", "x=off", "-netdev", "user,id=b", *arguments):
        ET.SubElement(line, "{http://libvirt.org/schemas/domain/qemu/1.0}arg", value=value)
    assert name in names(ET.tostring(domain, encoding="unicode"))


def test_what_qemu_leaves_out_counts_only_while_it_does() -> None:
    every = names(LIVE.replace("i8042=off,sata=off,smbus=off", "smbus=off"))
    assert every - names(LIVE) == {"input mouse ps2", "input keyboard ps2", "controller sata 0"}
    assert names(LIVE.replace("sata=off", "sata=on")) - names(LIVE) == {"controller sata 0"}


def test_the_definition_switches_off_what_no_guest_needs() -> None:
    domain = defined()
    assert domain.find("features/vmport[@state='off']") is not None
    assert domain.find("clock/timer[@name='hpet'][@present='no']") is not None
    assert domain.find("devices/controller[@type='usb'][@model='none']") is not None
    assert domain.find("devices/memballoon[@model='none']") is not None
    arguments = [argument.attrib["value"] for argument in domain.iter() if argument.tag.endswith("}arg")]
    assert arguments[arguments.index("-machine") + 1] == "i8042=off,sata=off,smbus=off"
    (card,) = [argument for argument in arguments if argument.startswith("virtio-net-pci,")]
    assert {"romfile=", "disable-legacy=on"} <= set(card.split(","))


@pytest.mark.parametrize(
    "live_xml",
    ["", "<domain", "<domain/>", "<domain><devices><disk/></devices></domain>", "\x00",
     "<domain><devices><serial><target/></serial></devices></domain>",
     "<domain><devices><rng><address type='pci' domain='x'/></rng></devices></domain>"],
)  # fmt: skip
def test_what_cannot_be_read_is_unknown(live_xml: str) -> None:
    found = devices_of(live_xml)
    assert found.devices is None
    assert found.reason


def test_many_devices_are_unknown_and_never_a_part_of_them() -> None:
    many = "".join("<hostdev type='pci'/>" for _ in range(DEVICES_MAX))
    found = devices_of(LIVE.replace("</devices>", f"{many}</devices>"))
    assert found.devices is None
    assert found.reason is not None
    assert "at most 64" in found.reason


@pytest.mark.parametrize("name", ["\u00e9", "a" * 65, "a\nb"])
def test_a_name_that_cannot_be_reported_is_unknown(name: str) -> None:
    quoted = name.replace("\n", "&#10;")
    found = devices_of(LIVE.replace("name='berth.ready'", f"name='{quoted}'"))
    assert found.devices is None
    assert found.reason is not None
    assert found.reason.startswith("the live domain cannot be reported: name: ")


@given(st.text())
def test_any_reason_can_be_reported(reason: str) -> None:
    found = unknown(reason)
    assert found.reason is not None
    assert 0 < len(found.reason) <= REASON_MAX
    assert devices_in(json.loads(json.dumps(found.evidence()))) == found


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    assert devices_of(text).devices is None
    devices_of(LIVE.replace("berth.ready", text))
    devices_of(LIVE.replace("0x1e", text))


@pytest.mark.parametrize(
    "reported",
    [
        {}, {"devices": []}, {"devices": None}, {"devices": [{"name": "a"}], "reason": "b"}, {"reason": ""},
        {"devices": [{"name": "a"}, {"name": "a"}]}, {"devices": [{"name": ""}]}, {"devices": [{"name": "\x1b[2J"}]},
        {"devices": [{"name": str(n)} for n in range(DEVICES_MAX + 1)]},
        {"devices": [{"name": "a" * 65}]}, {"devices": "none"}, {"reason": "x" * (REASON_MAX + 1)}, [], "none", 7, None,
    ],
)  # fmt: skip
def test_what_no_agent_may_report(reported: object) -> None:
    with pytest.raises(ValidationError):
        devices_in({EVIDENCE: reported})


def test_a_guest_of_the_sandbox_has_none_for_a_reason() -> None:
    assert NO_DEVICES == devices_in(NO_DEVICES.evidence()) == GuestDevices(devices=[], reason=NO_DEVICES.reason)
    assert devices_in({}) is None
