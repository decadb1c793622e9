"""The definition of a guest: libvirt's domain XML (libvirt.org/formatdomain.html), and the owner of a domain.

A guest has a disk, a seed, a network card, a serial port, a channel for the ready message, a source of random numbers and the
GPUs of its slots, and no other device. `docs/reference/fleet/guest-devices.md` says why of each.
"""

from __future__ import annotations

import hashlib
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from node_agent.checks.firmware import Ovmf
from node_agent.drivers.libvirt.network.names import tap_name
from node_agent.drivers.libvirt.records import GuestDirectory, GuestRecord
from node_agent.drivers.libvirt.resources import add_cells, add_host_devices, add_memory, add_processors

NAMESPACE = "urn:berth:allocation:1"
CHANNEL = "berth.ready"
EMULATOR = "/usr/bin/qemu-system-x86_64"
_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
# Emulation alone: QEMU's cache of translated code grows to 1 GiB for each guest otherwise.
TRANSLATION_CACHE_MIB = 64
# Parts of the machine type q35 that libvirt has no element for: PS/2 keyboard and mouse, SATA, SMBus.
MACHINE_PARTS_OFF = "i8042=off,sata=off,smbus=off"
RESTRICT = "on"
"""The guest reaches neither this host nor anything behind it; the port of its SSH server is forwarded all the same."""
CHECK_HOST = "127.0.0.1"

ET.register_namespace("berth", NAMESPACE)
ET.register_namespace("qemu", _QEMU)


@dataclass(frozen=True)
class Owner:
    """What a domain's metadata say: which allocation it is, under which fence, with which slots.

    `directory` is the driver's: two agents may share a libvirtd, as the nodes of a local stack do.
    """

    allocation_id: UUID
    fence: int
    slots: tuple[int, ...]
    directory: str


def domain_xml(
    directory: GuestDirectory,
    record: GuestRecord,
    accelerator: Literal["kvm", "qemu"],
    user_id: int,
    host: str,
    ovmf: Ovmf | None = None,
) -> str:
    """The domain of this record. Its disk is encrypted with the libvirt secret whose UUID is the allocation's.

    QEMU runs as `user_id`, so that no other guest's QEMU can read these files. The record's port of `host`, an IPv4 address,
    leads to the guest's SSH server. With `ovmf` it boots by UEFI: libvirt makes its file of variables at the first start.
    """
    domain = ET.Element("domain", type=accelerator)
    ET.SubElement(domain, "name").text = f"berth-{record.allocation_id}"
    ET.SubElement(domain, "uuid").text = str(record.allocation_id)
    slots = ",".join(map(str, record.slots))
    owner = {
        "id": str(record.allocation_id), "fence": str(record.fence), "slots": slots,
        "directory": str(directory.path.parent),
    }  # fmt: skip
    ET.SubElement(ET.SubElement(domain, "metadata"), f"{{{NAMESPACE}}}allocation", owner)
    add_memory(domain, record)
    add_processors(domain, record)
    add_cells(_machine(domain, accelerator, directory, ovmf), record.placement)
    label = ET.SubElement(domain, "seclabel", type="static", model="dac", relabel="yes")
    ET.SubElement(label, "label").text = f"+{user_id}:+{user_id}"
    devices = ET.SubElement(domain, "devices")
    ET.SubElement(devices, "emulator").text = EMULATOR
    _disks(devices, directory, record)
    _ports(devices, directory)
    add_host_devices(devices, record.gpus)
    if record.network is None:
        _user_network(domain, record, host)
    else:
        _tenant_network(domain, devices, tap_name(record.allocation_id), record.network.mac, record.network_mtu)
    return ET.tostring(domain, encoding="unicode")


def owner_of(metadata: str) -> Owner | None:
    """The owner that a domain's metadata name; None if they are not Berth's."""
    try:
        element = ET.fromstring(metadata)
        slots = tuple(int(slot) for slot in element.attrib["slots"].split(",") if slot)
        read = element.attrib
        return Owner(UUID(read["id"]), int(read["fence"]), slots, read["directory"])
    except (ET.ParseError, KeyError, ValueError):
        return None


def channel_path(live_xml: str) -> str:
    """The UNIX socket of a running guest's ready channel. Raises LookupError."""
    for channel in ET.fromstring(live_xml).iter("channel"):
        target, source = channel.find("target"), channel.find("source")
        if target is not None and source is not None and target.get("name") == CHANNEL:
            return source.attrib["path"]
    raise LookupError(f"the guest has no channel {CHANNEL}")


def secret_xml(allocation_id: UUID) -> str:
    """A secret for the disk's key: never written to a file by libvirt, and given to no client."""
    secret = ET.Element("secret", ephemeral="yes", private="yes")
    ET.SubElement(secret, "uuid").text = str(allocation_id)
    ET.SubElement(ET.SubElement(secret, "usage", type="volume"), "volume").text = f"berth-{allocation_id}"
    return ET.tostring(secret, encoding="unicode")


def _machine(domain: ET.Element, accelerator: str, directory: GuestDirectory, ovmf: Ovmf | None) -> ET.Element:
    """Everything of the machine but its devices; returns the element of its processors."""
    system = ET.SubElement(domain, "os")
    ET.SubElement(system, "type", arch="x86_64", machine="q35").text = "hvm"
    if ovmf is not None:
        ET.SubElement(system, "loader", readonly="yes", type="pflash").text = str(ovmf.code)
        ET.SubElement(system, "nvram", template=str(ovmf.variables)).text = str(directory.uefi_variables)
    ET.SubElement(system, "boot", dev="hd")
    features = ET.SubElement(domain, "features")
    ET.SubElement(features, "acpi")
    ET.SubElement(features, "apic")
    ET.SubElement(features, "vmport", state="off")  # VMware's port, and the mouse behind it
    if accelerator == "kvm":
        cpu = ET.SubElement(domain, "cpu", mode="host-passthrough", migratable="off")
    else:
        cache = ET.SubElement(ET.SubElement(features, "tcg"), "tb-cache", unit="MiB")
        cache.text = str(TRANSLATION_CACHE_MIB)
        cpu = ET.SubElement(domain, "cpu", mode="custom", match="exact", check="none")
        ET.SubElement(cpu, "model", fallback="forbid").text = "qemu64"
    ET.SubElement(ET.SubElement(domain, "clock", offset="utc"), "timer", name="hpet", present="no")
    # A guest that crashes is off, for the agent to see; libvirt starts none by itself.
    for event, action in (("on_poweroff", "destroy"), ("on_reboot", "restart"), ("on_crash", "destroy")):
        ET.SubElement(domain, event).text = action
    return cpu


def _disks(devices: ET.Element, directory: GuestDirectory, record: GuestRecord) -> None:
    volume = directory.volume
    disk = ET.SubElement(devices, "disk", type="file" if volume is None else "block", device="disk")
    # cache=none: no tenant data in the host's page cache. Without discard: what leaves the disk could not be overwritten.
    driver = ET.SubElement(
        disk, "driver", name="qemu", type="qcow2", cache="none", discard="ignore", detect_zeroes="off"
    )
    if volume is None:
        source = ET.SubElement(disk, "source", file=str(directory.disk))
    else:
        # A pool that is full fails writes with ENOSPC, one whose metadata are full with EIO: the guest waits for both.
        driver.set("error_policy", "stop")
        driver.set("rerror_policy", "report")
        source = ET.SubElement(disk, "source", dev=f"/dev/{volume}")
    encryption = ET.SubElement(source, "encryption", format="luks")
    ET.SubElement(encryption, "secret", type="passphrase", uuid=str(record.allocation_id))
    backing = ET.SubElement(disk, "backingStore", type="file")
    ET.SubElement(backing, "format", type=record.image_format)
    # The image is shared by guests: it stays root's, for all to read.
    base = ET.SubElement(backing, "source", file=str(directory.base))
    ET.SubElement(base, "seclabel", model="dac", relabel="no")
    ET.SubElement(backing, "backingStore")
    ET.SubElement(disk, "target", dev="vda", bus="virtio")
    ET.SubElement(disk, "serial").text = "berth-disk"
    seed = ET.SubElement(devices, "disk", type="file", device="disk")
    ET.SubElement(seed, "driver", name="qemu", type="raw")
    ET.SubElement(seed, "source", file=str(directory.seed))
    ET.SubElement(seed, "target", dev="vdb", bus="virtio")
    ET.SubElement(seed, "readonly")
    ET.SubElement(seed, "serial").text = "berth-seed"


def _ports(devices: ET.Element, directory: GuestDirectory) -> None:
    ET.SubElement(devices, "controller", type="usb", model="none")
    serial = ET.SubElement(devices, "serial", type="pty")
    ET.SubElement(serial, "log", file=str(directory.console_log), append="on")
    ET.SubElement(serial, "target", port="0")
    channel = ET.SubElement(devices, "channel", type="unix")
    ET.SubElement(channel, "source", mode="bind")
    ET.SubElement(channel, "target", type="virtio", name=CHANNEL)
    random = ET.SubElement(devices, "rng", model="virtio")
    ET.SubElement(random, "backend", model="random").text = "/dev/urandom"
    ET.SubElement(devices, "memballoon", model="none")


def _user_network(domain: ET.Element, record: GuestRecord, host: str) -> None:
    """A network of this guest alone, which reaches nothing: `restrict`. The host's port leads to the guest's SSH server.

    `CHECK_HOST`'s port leads to the port of its readiness, for this host alone.
    """
    address = hashlib.sha256(record.allocation_id.bytes).digest()
    mac = "52:54:00:" + ":".join(f"{octet:02x}" for octet in address[:3])
    check = f",hostfwd=tcp:{CHECK_HOST}:{record.check_port}-:{record.readiness_port}" if record.check_port else ""
    _arguments(
        domain,
        "-netdev", f"user,id=net0,restrict={RESTRICT},hostfwd=tcp:{host}:{record.port}-:22{check}",
        "-device", f"virtio-net-pci,netdev=net0,mac={mac},bus=pcie.0,addr=0x1e,romfile=,disable-legacy=on",
    )  # fmt: skip


def _tenant_network(domain: ET.Element, devices: ET.Element, tap: str, mac: str, mtu: int | None) -> None:
    """A card on the tap that the agent has made: libvirt neither makes nor removes it, so its rules hold before the start."""
    card = ET.SubElement(devices, "interface", type="ethernet")
    ET.SubElement(card, "mac", address=mac)
    ET.SubElement(card, "target", dev=tap, managed="no")
    ET.SubElement(card, "model", type="virtio-non-transitional")
    if mtu is not None:
        # By virtio: the guest needs no seed for it.
        ET.SubElement(card, "mtu", size=str(mtu))
    ET.SubElement(card, "rom", enabled="no")
    ET.SubElement(card, "address", type="pci", domain="0x0000", bus="0x00", slot="0x1e", function="0x0")
    _arguments(domain)


def _arguments(domain: ET.Element, *more: str) -> None:
    options = ET.SubElement(domain, f"{{{_QEMU}}}commandline")
    for argument in (*more, "-machine", MACHINE_PARTS_OFF):
        ET.SubElement(options, f"{{{_QEMU}}}arg", value=argument)
