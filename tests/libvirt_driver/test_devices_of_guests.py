"""A running guest has the devices and ports of docs/reference/fleet/guest-devices.md and no other, seen from every side."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.contract import Verb
from node_agent.drivers.libvirt.domain import domain_xml
from node_agent.drivers.performing import Unheard, perform
from node_agent.protocol import Connection
from node_agent.wire.devices import EVIDENCE
from tests.drivers.guest_users import first_user_id
from tests.drivers.in_process import SLOT, Node, play
from tests.drivers.libvirt_harness import LibvirtHarness
from tests.libvirt_driver.device_page import rows

pytestmark = pytest.mark.hardware

PCI = re.compile(r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [0-9a-f]{4}:[0-9a-f]{4}$")
ACPI = re.compile(r"^[A-Z]{3,4}[0-9A-Z]{4}$|^LNX[A-Z]+$")
# What the guest finds, one line each: its kind, then its name.
LOOK = """
for d in /sys/bus/pci/devices/*; do echo pci $(basename $d) $(cut -c3- $d/vendor):$(cut -c3- $d/device); done
for h in /sys/bus/acpi/devices/*/hid; do echo acpi $(cat $h); done
for d in /sys/block/*; do echo block $(basename $d); done
for d in /sys/class/net/*; do echo net $(basename $d); done
for d in /sys/class/virtio-ports/*; do echo port $(basename $d) $(cat $d/name); done
for d in /sys/class/tty/ttyS*; do [ $(cat $d/type) = 0 ] || echo tty $(basename $d); done
for d in /sys/class/input/input*; do echo input $(cat $d/name); done
for b in usb i2c hid scsi serio hdaudio sound drm ata_port tpm; do
  for d in /sys/bus/$b/devices/* /sys/class/$b/*; do [ ! -e $d ] || echo other $b $(basename $d); done
done
for d in /sys/class/graphics/fb[0-9]*; do [ ! -e $d ] || echo other graphics $(basename $d); done
for d in /sys/devices/pci*; do echo root $(basename $d); done
"""


def domain_of(connection: Any, allocation_id: uuid.UUID) -> Any:
    """The guest's domain."""
    return connection.lookupByUUIDString(str(allocation_id))


def tree_of_qemu(allocation_id: uuid.UUID) -> Counter[str]:
    """The names in QEMU's own tree of devices."""
    import libvirt
    import libvirt_qemu

    connection = libvirt.open("qemu:///system")
    domain = domain_of(connection, allocation_id)
    tree = libvirt_qemu.qemuMonitorCommand(domain, "info qtree", libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP)
    connection.close()
    return Counter(re.findall(r"^ *dev: ([^,]+),", tree, re.MULTILINE))


def listeners(pid: int) -> set[str]:
    """What a process listens on: `tcp PORT`, `udp PORT`, and the paths of UNIX sockets."""
    links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {str(link)[8:-1] for link in links if str(link).startswith("socket:[")}
    found: set[str] = set()
    for table, listening in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and fields[3] == listening:
                found.add(f"{table} {int(fields[1].rpartition(':')[2], 16)}")
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[6] in inodes and fields[3] == "00010000":
            found.add(fields[7])
    return found


def connects(user_id: int, socket: str) -> bool:
    """Whether a process with this user's id, and no other right, can connect to a UNIX socket."""
    # It is started as root: other users may not reach Python's files.
    program = (
        "import os, socket, sys; wanted, made = int(sys.argv[1]), socket.socket(socket.AF_UNIX);"
        "os.setgroups([]); os.setresgid(wanted, wanted, wanted); os.setresuid(wanted, wanted, wanted); made.connect(sys.argv[2])"
    )
    command = [sys.executable, "-c", program, str(user_id), socket]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


async def seen_inside(node: Node, connection: Connection) -> dict[str, list[str]]:
    """What the guest finds, by kind."""
    found: dict[str, list[str]] = {}
    for line in (await node.tenant.run(connection, LOOK)).splitlines():  # type: ignore[attr-defined]
        kind, _, name = line.partition(" ")
        found.setdefault(kind, []).append(name)
    return found


def require_same_inside(found: dict[str, list[str]]) -> None:
    """The guest finds what the page says that it sees, and nothing else."""
    sees = [name for row in (*rows("Devices"), *rows("Parts of the machine")) for name in row.sees]
    pci = {name for name in sees if PCI.match(name)}
    acpi = {name for name in sees if ACPI.match(name)}
    assert set(found["pci"]) == pci
    assert set(found["acpi"]) == acpi
    others = set(sees) - pci - acpi
    ports = [line.split()[0] for line in found["port"]]
    assert {*found["root"], *found["tty"], *ports} == others
    assert [line.split()[1] for line in found["port"]] == ["berth.ready"]
    assert found["block"] == ["vda", "vdb"]
    assert found["net"] == ["eth0", "lo"]
    assert found["input"] == ["Power Button"], "neither keyboard, mouse nor tablet"
    assert found.get("other", []) == []


def test_a_guest_has_the_devices_of_the_page_from_every_side(harness: LibvirtHarness, tmp_path: Path) -> None:
    page = rows("Devices")

    async def scenario(node: Node) -> None:
        order = node.order()
        up = await perform(node.driver.provision(order), Unheard())
        reported = up.evidence[EVIDENCE]["devices"]
        assert {device["name"] for device in reported} == {row.name for row in page}
        assert {device["name"]: device.get("model") for device in reported} == {
            row.name: (row.model or (None,))[0] for row in page
        }
        addresses = {device["name"]: device.get("address") for device in reported}
        for row in page:
            shown = [name.split()[0] for name in row.sees if PCI.match(name)]
            assert not shown or addresses[row.name] == f"pci {shown[0]}", row.name
        of_qemu = Counter(name for row in (*page, *rows("Parts of the machine")) for name in row.qemu)
        assert tree_of_qemu(order.allocation_id) == of_qemu
        require_same_inside(await seen_inside(node, up.connection))
        require_ports(node, order.allocation_id, up.connection)
        again = await perform(node.verb(order, Verb.START), Unheard())
        assert again.evidence == {EVIDENCE: up.evidence[EVIDENCE]}, "a verb reads them again"

    play(harness, tmp_path, scenario)


def require_ports(node: Node, allocation_id: uuid.UUID, connection: Connection) -> None:
    """QEMU listens on the ports of the page alone, and no other guest's user opens its sockets."""
    (pid,) = node.probe.processes()[allocation_id]
    found = listeners(pid)
    sockets = {name for name in found if name.startswith("/")}
    assert found - sockets == {f"tcp {connection.port}"}
    assert {"ssh", *(Path(name).name for name in sockets)} == {row.name for row in rows("Ports")}
    own, other = first_user_id() + SLOT[0], first_user_id() + SLOT[0] + 1
    (channel,) = [name for name in sockets if name.endswith("/berth.ready")]
    assert connects(own, channel), "the control"
    assert {name for name in sockets if connects(other, name)} == set()


def test_a_device_that_the_page_does_not_have_is_found(
    harness: LibvirtHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a USB tablet is in the agent's list, in QEMU's tree and in the guest."""

    def with_tablet(*arguments: Any) -> str:
        xml = domain_xml(*arguments).replace(
            '<controller type="usb" model="none" />', '<controller type="usb" model="qemu-xhci" />'
        )
        return xml.replace("</devices>", '<input type="tablet" bus="usb" /></devices>')

    monkeypatch.setattr("node_agent.drivers.libvirt.provisioning.domain_xml", with_tablet)

    async def scenario(node: Node) -> None:
        order = node.order()
        up = await perform(node.driver.provision(order), Unheard())
        names = {device["name"] for device in up.evidence[EVIDENCE]["devices"]}
        assert {"controller usb 0", "input tablet usb"} <= names
        assert tree_of_qemu(order.allocation_id)["usb-tablet"] == 1
        found = await seen_inside(node, up.connection)
        assert any(name.endswith("1b36:000d") for name in found["pci"]), "its USB controller"
        with pytest.raises(AssertionError):
            require_same_inside(found)

    play(harness, tmp_path, scenario)
