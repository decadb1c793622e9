"""Nodes as network namespaces on one fabric. Each runs the code under test in its own process, driven by lines of JSON.

With VLANs a bridge that filters them is the switch: each node has a port at it for its trunk, and one at the fabric as before.
As a program: the process of one node.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from node_agent.drivers.libvirt.network.dhcp import NameServers
from node_agent.drivers.libvirt.network.networks import TenantNetworks
from node_agent.drivers.libvirt.network.policy import Naming, Policy, Trunk, Uplink
from node_agent.drivers.libvirt.network.rules import Guest
from node_agent.drivers.libvirt.network.span import Span
from node_agent.wire.networks import RemoteGuest, SpannedNetwork
from tests.libvirt_driver.network.stage import CLOSED, Stage, guest, sh

FABRIC = IPv4Network("192.0.2.0/24")
UNDERLAYS = {name: IPv4Address(f"192.0.2.{number}") for number, name in enumerate(("n1", "n2", "n3"), 1)}
STRANGER = IPv4Address("192.0.2.99")
"""A host of the fabric that is no node."""
VARIABLE = "BERTH_TEST_UPLINK"
KIND = os.environ.get(VARIABLE, "vxlan")
"""How the nodes are connected: `vxlan` or `vlan`."""
MTU = {"vxlan": 1450, "vlan": 1500}[KIND]
TRUNK = "trunk0"
"""A node's interface at the switch."""
VLANS = range(100, 200)
"""What the switch lets through at the ports of nodes; 1 is untagged there."""


def in_vlan(one: Guest) -> Guest:
    """The guest, whose network has VLAN 100 and its VNI."""
    return replace(one, order=one.order.model_copy(update={"vlan": 100 + one.order.vni}))


GUESTS: dict[str, Guest] = {
    "a1": in_vlan(guest(1, 1, 11)), "b1": in_vlan(guest(2, 2, 11)), "a2": in_vlan(guest(3, 1, 12)),
    "b2": in_vlan(guest(4, 2, 12)), "a3": in_vlan(guest(5, 1, 13)),
}  # fmt: skip
"""Tenant, then the node."""


def node_of(name: str) -> str:
    """The node of a guest."""
    return f"n{name[1]}"


def spanned(node: str, *elsewhere: str) -> list[SpannedNetwork]:
    """What the control plane names to a node whose networks have these guests on other nodes."""
    networks = {one.order.network_id: one.order for name, one in GUESTS.items() if node_of(name) == node}
    return [
        SpannedNetwork(
            network_id=network_id,
            vni=order.vni,
            guests=[
                RemoteGuest(
                    address=it.address, mac=it.mac, underlay=UNDERLAYS[node_of(name)], names=[f"berth-{name}", name]
                )
                for name in elsewhere
                if node_of(name) != node and (it := GUESTS[name].order).network_id == network_id
            ],
        )
        for network_id, order in networks.items()
    ]


class Node:
    """A node's process, which may be killed and started again in the same namespace and with the same file."""

    def __init__(
        self, name: str, directory: Path, *guests: str, egress: bool = False, domain: str | None = None
    ) -> None:  # fmt: skip
        self.name = name
        self.directory = directory
        self.guests = guests
        self.egress = egress
        self.domain = domain
        self.kind = KIND
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start its agent; raises what the start raises."""
        options = json.dumps([self.name, str(self.directory), self.guests, self.egress, self.domain, self.kind])
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, "-m", __name__, options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.call("start")

    def knows(self, *elsewhere: str) -> Any:
        """The control plane names these guests; whether something was damaged beside that."""
        return self.call("note", *elsewhere)

    def tend(self) -> Any:
        """Whether something was damaged."""
        return self.call("tend")

    def call(self, what: str, *arguments: str) -> Any:
        """Have the node's process do something."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, *arguments]) + "\n")
        self._process.stdin.flush()
        while not (line := self._process.stdout.readline()).startswith("= "):
            assert line, f"the process of {self.name} has ended"
        return json.loads(line[2:])

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def rules_off(self) -> None:
        """No rules, as if there were none."""
        sh("nft flush ruleset", self.name)


@dataclass
class Fabric:
    """The whole stage."""

    stage: Stage
    nodes: dict[str, Node]

    def end(self) -> None:
        """End every process."""
        for node in self.nodes.values():
            node.kill()
        self.stage.end()


def fabric_with(directory: str, *, egress: bool = False, domain: str | None = None) -> Fabric:
    """Three nodes with all guests; each agent is started and knows of all. `domain`: None if names are not served."""
    sh("ip link add fabric type bridge; ip addr add 192.0.2.99/24 dev fabric; ip link set fabric up")
    fabric = Fabric(Stage([]), {})
    if KIND == "vlan":
        sh("ip link add switch type bridge vlan_filtering 1 mcast_snooping 0; ip addr add 198.51.100.99/24 dev switch")
        sh("ip link set switch up")
    for name, underlay in UNDERLAYS.items():
        port = f"m{name}" if KIND == "vlan" else name
        sh(
            f"ip netns add {name}; ip link add {port} type veth peer name up0 netns {name}; ip link set {port} master fabric up"
        )
        if KIND == "vlan":
            sh(f"ip link add {name} type veth peer name {TRUNK} netns {name}; ip link set {name} master switch up")
            sh(f"bridge vlan add dev {name} vid {VLANS[0]}-{VLANS[-1]}")
        sh(
            f"""ip link set lo up; ip addr add {underlay}/24 dev up0; ip link set up0 up
                echo 1 >/proc/sys/net/ipv4/ip_forward; for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done""",
            name,
        )
        (Path(directory) / name).mkdir(mode=0o755)
        guests = [one for one in GUESTS if node_of(one) == name]
        fabric.nodes[name] = Node(name, Path(directory) / name, *guests, egress=egress, domain=domain)
    for name, one in GUESTS.items():
        _card(fabric.stage, name, one)
    for node in fabric.nodes.values():
        node.start()
        node.knows(*GUESTS)
    return fabric


def _card(stage: Stage, name: str, one: Guest) -> None:
    order = one.order
    sh(f"ip netns add {name}")
    sh(f"ip link add {one.tap} type veth peer name eth0 netns {name} address {order.mac}", node_of(name))
    sh(
        f"""ip link set lo up; ip link set eth0 up mtu {MTU} addrgenmode none
            ip addr add {order.address}/{order.subnet.prefixlen} dev eth0; ip route add default via {order.gateway}""",
        name,
    )
    stage.serve(name, name, 22)


async def _serve(name: str, directory: str, guests: list[str], egress: bool, domain: str | None, kind: str) -> None:
    own = UNDERLAYS[name]
    uplinks: dict[str, Uplink | Trunk | None] = {
        "vlan": Trunk(TRUNK, own, MTU), "vxlan": Uplink(own, (FABRIC,), MTU), "none": None,
    }  # fmt: skip
    uplink = uplinks[kind]
    wanted = [GUESTS[one] for one in guests]
    policy = Policy(UNDERLAYS[name], CLOSED, egress, uplink, Naming(domain) if domain else None)
    span, names = (
        Span(uplink, Path(directory) / "networks.json") if uplink is not None else None,
        NameServers(Path(directory) / "names", policy.naming, policy.mtu),
    )
    networks = TenantNetworks(policy, lambda: wanted, span, names)
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        answer: Any = None
        if what == "start":
            await networks.start()
        elif what == "note":
            networks.note_other_nodes(spanned(name, *arguments))
            answer = await networks.tend()
        elif what == "hear":
            networks.note_other_nodes(spanned(name, *arguments))
        elif what == "tend":
            answer = await networks.tend()
        elif what == "in":
            wanted.append(GUESTS[arguments[0]])
            try:
                await networks.bring_in(GUESTS[arguments[0]])
            except OSError as refused:
                answer = str(refused)
        elif what == "forget":
            wanted.remove(GUESTS[arguments[0]])
        elif what == "out":
            answer = await networks.take_out(GUESTS[arguments[0]].allocation_id)
            wanted.remove(GUESTS[arguments[0]])
        print(f"= {json.dumps(answer)}", flush=True)  # noqa: T201 - the answer


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A directory for the files of nodes."""
    return tempfile.TemporaryDirectory(prefix="berth-nodes-")


if __name__ == "__main__":
    asyncio.run(_serve(*json.loads(sys.argv[1])))
