"""The devices of a running guest, by libvirt's description of the live domain.

The names are the rows of docs/reference/fleet/guest-devices.md: a device that this module does not know gets a name there that
no row has.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from node_agent.wire.devices import DEVICES_MAX, GuestDevice, GuestDevices, unknown
from node_agent.wire.fields import first_error

_QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
# libvirt lists these on every machine of the type q35; an argument of QEMU leaves them out.
_OF_MACHINE = {"sata": ("controller sata 0",), "i8042": ("input mouse ps2", "input keyboard ps2")}
_OFF = ("off", "no")


@dataclass(frozen=True)
class _Found:
    name: str
    model: str | None = None
    address: str | None = None


def devices_of(live_xml: str) -> GuestDevices:
    """The devices that the live domain has. What cannot be read is unknown, and never an error."""
    try:
        domain = ET.fromstring(live_xml)
        absent = _left_out(domain)
        found = [device for device in (*_described(domain), *_added(domain)) if device.name not in absent]
    except (ET.ParseError, ValueError, KeyError, AttributeError) as error:
        return unknown(f"the live domain cannot be read: {type(error).__name__}: {error}")
    if len(found) > DEVICES_MAX:
        return unknown(f"the guest has {len(found)} devices; at most {DEVICES_MAX} are reported")
    if not found:
        return unknown("the live domain names no device")
    try:
        return GuestDevices(devices=[GuestDevice(name=one.name, model=one.model, address=one.address) for one in found])
    except ValidationError as error:
        return unknown(f"the live domain cannot be reported: {first_error(error, 'devices')}")


def _described(domain: ET.Element) -> Iterator[_Found]:
    """Devices of the element `devices`, but those that only say that there is none."""
    seen: Counter[str] = Counter()
    serial_ports = {alias.get("name") for alias in domain.iterfind("devices/serial/alias")}
    for device in domain.iterfind("devices/*"):
        kind, model = device.tag, _model(device)
        if kind == "emulator" or model == "none" or (kind == "audio" and device.get("type") == "none"):
            continue
        alias = device.find("alias")
        if kind == "console" and alias is not None and alias.get("name") in serial_ports:
            continue  # a second name of the serial port
        yield _Found(_name(device, seen[kind]), model, _address(device))
        seen[kind] += 1


def _name(device: ET.Element, number: int) -> str:
    target = device.find("target")
    place = {} if target is None else target.attrib
    if device.tag == "disk":
        return f"disk {place['dev']}"
    if device.tag == "serial":
        return f"serial {place['port']}"
    if device.tag == "channel":
        return f"channel {place['name']}"
    if device.tag == "controller":
        return f"controller {device.attrib['type']} {device.attrib['index']}"
    host = device.find("source/address")
    if device.tag == "hostdev" and host is not None:
        return f"gpu {_pci(host.attrib)}"
    if device.tag == "input":
        return f"input {device.attrib['type']} {device.attrib['bus']}"
    return f"{device.tag} {number}"


def _model(device: ET.Element) -> str | None:
    """Of a serial port the model is below `target`, and a disk's bus is its model."""
    target = device.find("target")
    if device.tag == "serial" and target is not None:
        return target.find("model").attrib["name"]  # type: ignore[union-attr]  # AttributeError is handled
    if device.tag == "hostdev" and device.find("driver") is not None:
        return device.find("driver").attrib["name"]  # type: ignore[union-attr]  # it was found
    if device.tag in ("disk", "channel") and target is not None:
        return target.get("bus") or target.get("type")
    return device.get("model") or (device.get("type") if device.tag != "controller" else None)


def _address(device: ET.Element) -> str | None:
    address = device.find("address")
    if address is None:
        return None
    read = address.attrib
    if read.get("type") == "pci":
        return f"pci {_pci(read)}"
    parts = [read[part] for part in ("controller", "bus", "port") if part in read]
    return f"{read.get('type')} {':'.join(parts)}".strip()


def _pci(read: Mapping[str, str]) -> str:
    domain, bus, slot, function = (int(read[part], 16) for part in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"


def _arguments(domain: ET.Element) -> Iterator[tuple[str, str]]:
    """Options that the definition adds to QEMU's command line, with their values."""
    values = [argument.attrib["value"] for argument in domain.iterfind(f"{_QEMU}commandline/{_QEMU}arg")]
    while values:
        option = values.pop(0)
        yield option, values.pop(0) if values and not values[0].startswith("-") else ""


def _added(domain: ET.Element) -> Iterator[_Found]:
    """Devices that the definition adds by arguments of QEMU. An unknown argument counts as one."""
    for number, (option, value) in enumerate(_arguments(domain)):
        if option == "-device":
            properties = _properties(value)
            netdev = properties.get("netdev")
            name = f"device {number}" if netdev is None else f"interface {netdev}"
            address = None
            if properties.get("bus") == "pcie.0" and "addr" in properties:
                address = f"pci 0000:00:{int(properties['addr'], 16):02x}.0"
            yield _Found(name, properties["driver"], address)
        elif option not in ("-netdev", "-machine"):
            yield _Found(f"argument {number}", f"{option} {value}".strip())


def _left_out(domain: ET.Element) -> set[str]:
    """Names of devices of the machine type that an argument of QEMU switches off."""
    machine: dict[str, str] = {}
    for option, value in _arguments(domain):
        if option == "-machine":
            machine |= _properties(value)
    return {name for part, names in _OF_MACHINE.items() if machine.get(part) in _OFF for name in names}


def _properties(value: str) -> dict[str, str]:
    """The properties of an argument, as text or as JSON; the first without a name is the driver."""
    if value.startswith("{"):
        return {str(name): str(inner) for name, inner in json.loads(value).items()}
    pairs = [part.partition("=") for part in value.split(",")]
    return {name if equals else "driver": inner if equals else name for name, equals, inner in pairs}
