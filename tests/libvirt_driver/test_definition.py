"""The definition of a guest: the devices that the page justifies and no other, and its owner."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.checks.firmware import Ovmf
from node_agent.drivers.libvirt.domain import NAMESPACE, Owner, channel_path, owner_of
from node_agent.drivers.libvirt.network.names import tap_name
from tests.drivers.bridged_harness import network_of
from tests.libvirt_driver.definitions import ALLOCATION, defined

# docs/reference/fleet/guest-devices.md justifies them; test_devices_of_guests.py compares it with a running guest.
DEVICES = {
    "emulator", "disk vda", "disk vdb", "controller usb none", "serial pty", "channel berth.ready", "rng virtio",
    "memballoon none",
}  # fmt: skip


def named(device: ET.Element) -> str:
    """A device as `DEVICES` and the page name it."""
    target = device.find("target")
    by_target = {"disk": "dev", "channel": "name"}.get(device.tag)
    if by_target is not None and target is not None:
        return f"{device.tag} {target.attrib[by_target]}"
    model = device.get("model")
    return " ".join(part for part in (device.tag, device.get("type"), model) if part)


def test_a_guest_is_defined_with_these_devices_and_no_other() -> None:
    devices = defined().find("devices")
    assert devices is not None
    assert {named(device) for device in devices} == DEVICES


def test_the_network_of_a_guest_reaches_nothing() -> None:
    arguments = [argument.attrib["value"] for argument in defined().iter() if argument.tag.endswith("}arg")]
    (network,) = [argument for argument in arguments if argument.startswith("user,")]
    assert "restrict=on" in network.split(",")
    assert "hostfwd=tcp:192.0.2.7:20022-:22" in network.split(",")


def test_the_port_of_its_readiness_is_for_this_host_alone() -> None:
    (network,) = [text for argument in defined(readiness="tcp_port", readiness_port=8443, check_port=20_023).iter()
                  if (text := argument.get("value", "")).startswith("user,")]  # fmt: skip
    assert [part for part in network.split(",") if part.startswith("hostfwd")] == [
        "hostfwd=tcp:192.0.2.7:20022-:22", "hostfwd=tcp:127.0.0.1:20023-:8443",
    ]  # fmt: skip


def test_a_guest_boots_by_uefi_with_variables_of_its_own() -> None:
    system = defined(ovmf=Ovmf(Path("/code.fd"), Path("/variables.fd"))).find("os")
    assert system is not None
    loader, variables = system.find("loader"), system.find("nvram")
    assert loader is not None
    assert variables is not None
    assert (loader.text, loader.get("readonly")) == ("/code.fd", "yes")
    assert variables.get("template") == "/variables.fd"
    assert variables.text == f"/guests/allocations/{ALLOCATION}/uefi-vars.fd"
    assert defined().find("os/loader") is None


def test_a_guest_of_a_tenant_network_has_a_card_on_the_tap_of_the_agent() -> None:
    order = network_of(2)
    domain = defined(network=order)
    (card,) = domain.iter("interface")
    target, mac = card.find("target"), card.find("mac")
    assert target is not None
    assert mac is not None
    assert (card.attrib, target.attrib) == ({"type": "ethernet"}, {"dev": tap_name(ALLOCATION), "managed": "no"})
    assert mac.attrib == {"address": order["mac"]}
    arguments = [argument.attrib["value"] for argument in domain.iter() if argument.tag.endswith("}arg")]
    assert not any("netdev" in argument for argument in arguments), "and no user network beside it"
    assert "i8042=off,sata=off,smbus=off" in arguments
    assert card.find("mtu") is None


def test_a_guest_in_a_network_that_spans_nodes_learns_its_mtu() -> None:
    (card,) = defined(network=network_of(2), network_mtu=1450).iter("interface")
    mtu = card.find("mtu")
    assert mtu is not None
    assert mtu.attrib == {"size": "1450"}


def test_the_disk_is_encrypted_and_the_image_stays_roots() -> None:
    disk = next(found for found in defined().iter("disk") if named(found) == "disk vda")
    source, base = disk.find("source"), disk.find("backingStore/source")
    assert source is not None
    assert base is not None
    encryption, label = source.find("encryption"), base.find("seclabel")
    assert encryption is not None
    assert label is not None
    assert encryption.attrib == {"format": "luks"}
    assert label.attrib == {"model": "dac", "relabel": "no"}
    driver = disk.find("driver")
    assert driver is not None
    assert driver.attrib["cache"] == "none"


def test_qemu_runs_as_the_user_of_the_guest() -> None:
    assert defined().findtext("seclabel/label") == "+64502:+64502"


def test_kvm_passes_the_processor_on_and_emulation_bounds_its_cache() -> None:
    assert defined("kvm").attrib["type"] == "kvm"
    assert [cpu.attrib["mode"] for cpu in defined("kvm").iter("cpu")] == ["host-passthrough"]
    assert defined("qemu").findtext("features/tcg/tb-cache") == "64"
    assert defined("kvm").find("features/tcg") is None


@given(fence=st.integers(0, 2**53 - 1), slots=st.lists(st.integers(0, 63), min_size=1, unique=True))
def test_a_domain_names_its_owner(fence: int, slots: list[int]) -> None:
    (metadata,) = defined(fence=fence, slots=slots).iter(f"{{{NAMESPACE}}}allocation")
    read = owner_of(ET.tostring(metadata, encoding="unicode"))
    assert read == Owner(ALLOCATION, fence, tuple(slots), "/guests/allocations")


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "<a",
        "<a/>",
        "<a id='x' fence='1' slots='1' directory='d'/>",
        f"<a id='{ALLOCATION}' fence='x' slots='1' directory='d'/>",
    ],
)
def test_metadata_of_others_name_no_owner(metadata: str) -> None:
    assert owner_of(metadata) is None


def test_the_channel_is_found_by_its_name() -> None:
    xml = """<domain><devices>
      <channel type='unix'><source mode='bind' path='/other'/><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
      <channel type='unix'><source mode='bind' path='/ready'/><target type='virtio' name='berth.ready'/></channel>
    </devices></domain>"""
    assert channel_path(xml) == "/ready"
    with pytest.raises(LookupError):
        channel_path("<domain/>")


@pytest.mark.parametrize("hostile", ["/guests/a'b", '/guests/a"><x/>', "/guests/<b>&amp;"])
def test_no_name_breaks_out_of_its_place(hostile: str) -> None:
    domain = defined(directory=Path(hostile))
    (metadata,) = domain.iter(f"{{{NAMESPACE}}}allocation")
    assert metadata.attrib["directory"] == hostile
    devices = domain.find("devices")
    assert devices is not None
    assert {named(device) for device in devices} == DEVICES
