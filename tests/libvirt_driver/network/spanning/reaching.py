"""What guests of two nodes reach, while peers come, go and die, agents are killed and interfaces change. Prints JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from node_agent.drivers.libvirt.network.names import TRUNK_BRIDGE
from tests.libvirt_driver.network.frames import MARK
from tests.libvirt_driver.network.spanning.nodes import GUESTS, KIND, MTU, TRUNK, Fabric, Node, fabric_with, scratch
from tests.libvirt_driver.network.spanning.packets import RAW_SENDER, arrives, ethernet, ipv4
from tests.libvirt_driver.network.stage import reached, sh

A1, A2 = GUESTS["a1"], GUESTS["a2"]
UPLINK = A1.uplink


def said(client: str, server: str) -> str:
    """What the server of a guest says to another guest; empty if nothing arrives."""
    return reached(client, str(GUESTS[server].order.address), 22)


def seen() -> dict[str, str]:
    """Which guest reaches which, by client and server."""
    return {f"{client} {server}": said(client, server) for client, server in
            (("a1", "a2"), ("a2", "a1"), ("b1", "b2"), ("a1", "a3"), ("a1", "b2"), ("b2", "a1"))}  # fmt: skip


def sized(length: int) -> bool:
    """Whether a packet of so many bytes arrives at the other node's guest."""
    own, other = A1.order, A2.order
    payload = MARK + bytes(length - 20 - len(MARK))
    frame = ethernet(own.mac, other.mac, ipv4(own.address, other.address, payload))
    sh(f"ip link set eth0 mtu {MTU + 50}", "a1")
    sh(f"ip link set {A1.tap} mtu {MTU + 50}", "n1")
    found = arrives("a2", "a1", RAW_SENDER, frame.hex(), "eth0")
    sh(f"ip link set {A1.tap} mtu 1500", "n1")
    sh(f"ip link set eth0 mtu {MTU}", "a1")
    return found


def shown() -> str:
    """Uplink, destinations, VLANs and rules of the first node."""
    devices = (UPLINK, A1.access, TRUNK, TRUNK_BRIDGE) if KIND == "vlan" else (UPLINK,)
    details = "; ".join(
        f"ip -details link show {one} | sed 's/^[0-9]*: //; /link.ether/d; /bridge_slave/d; s/ gc_timer .*//; s/bridge_id .*//'"
        for one in devices
    )
    details += "; bridge vlan show; ip -4 -br addr | grep '^berth-trunk' || true"
    details += "; bridge -details link show | grep -o 'learning [onf]*'"
    details += f"; bridge fdb show dev {UPLINK} | grep dst | sort"
    text = sh(f"{details}; nft -s list ruleset; ip -br link | grep -o '^berth[a-z0-9]*' | sort", "n1")
    return "\n".join(sorted(text.replace(",", "\n").split()))


_COMMON = {
    "uplink gone": f"ip link delete {UPLINK}",
    "uplink down": f"ip link set {UPLINK} down",
    "uplink out of its bridge": f"ip link set {UPLINK} nomaster",
    "uplink in another bridge": f"ip link set {UPLINK} master {GUESTS['b1'].bridge}",
    "another mtu": f"ip link set {UPLINK} mtu 1400",
    "rules flushed": "nft flush ruleset",
    "no guests elsewhere in the rules": "nft flush set bridge berth addresses",
    "a stray uplink": "ip link add berthv99 type bridge",
}  # fmt: skip
_VXLAN = {
    "a destination gone": f"bridge fdb del 00:00:00:00:00:00 dev {UPLINK} dst 192.0.2.2",
    "another destination": f"bridge fdb append 00:00:00:00:00:00 dev {UPLINK} dst 192.0.2.99",
    "a guest elsewhere": f"bridge fdb replace {A2.order.mac} dev {UPLINK} dst 192.0.2.99",
    "an uplink that learns": f"""ip link delete {UPLINK}
        ip link add {UPLINK} type vxlan id 1 local 192.0.2.1 dstport 4789; ip link set {UPLINK} master {A1.bridge} up""",
    "an uplink of another network": f"""ip link delete {UPLINK}
        ip link add {UPLINK} type vxlan id 77 local 192.0.2.1 dstport 4789 nolearning
        ip link set {UPLINK} master {A1.bridge} up""",
    "no peers in the rules": "nft flush set inet berth peers",
}  # fmt: skip
_VLAN = {
    "access port gone": f"ip link delete {A1.access}",
    "access port down": f"ip link set {A1.access} down",
    "access port out of its bridge": f"ip link set {A1.access} nomaster",
    "access port in the bridge of a network": f"ip link set {A1.access} master {GUESTS['b1'].bridge}",
    "an uplink that is no pair": f"""ip link delete {UPLINK}
        ip link add {UPLINK} type bridge; ip link add {A1.access} type bridge""",
    "in another vlan": f"bridge vlan del dev {A1.access} vid 101; bridge vlan add dev {A1.access} vid 102 pvid untagged",
    "in two vlans": f"bridge vlan add dev {A1.access} vid 102",
    "tagged at its access port": f"bridge vlan add dev {A1.access} vid 101 pvid",
    "an access port that learns": f"bridge link set dev {A1.access} learning on",
    "a vlan missing at the trunk": f"bridge vlan del dev {TRUNK} vid 101",
    "a vlan too many at the trunk": f"bridge vlan add dev {TRUNK} vid 150",
    "a native vlan at the trunk": f"bridge vlan add dev {TRUNK} vid 1 pvid untagged",
    "the node in a vlan": f"bridge vlan add dev {TRUNK_BRIDGE} vid 101 self",
    "vlans not filtered": f"ip link set {TRUNK_BRIDGE} type bridge vlan_filtering 0",
    "another port of the trunk's bridge": f"ip tuntap add dev foreign0 mode tap; ip link set foreign0 master {TRUNK_BRIDGE}",
    "an address at the trunk's bridge": f"ip addr add 10.9.9.9/24 dev {TRUNK_BRIDGE}",
    "trunk out of its bridge": f"ip link set {TRUNK} nomaster",
    "trunk down": f"ip link set {TRUNK} down",
    "trunk's bridge gone": f"ip link delete {TRUNK_BRIDGE}",
    "trunk's bridge down": f"ip link set {TRUNK_BRIDGE} down",
    "a stray access port": "ip link add bertha99 type bridge",
    "no vlans in the rules": "nft flush set bridge berth vlans",
}  # fmt: skip
DAMAGES_BY_KIND = {"vxlan": {**_COMMON, **_VXLAN}, "vlan": {**_COMMON, **_VLAN}}
DAMAGES = DAMAGES_BY_KIND[KIND]


def damaged(fabric: Fabric) -> dict[str, list[bool]]:
    """What each damage changes, and what a repair restores."""
    node = fabric.nodes["n1"]
    found: dict[str, list[bool]] = {}
    whole = shown()
    for name, damage in DAMAGES.items():
        sh(damage, "n1")
        changed = shown() != whole
        found[name] = [changed, node.tend(), shown() == whole, node.tend()]
    return found


def come_and_go(fabric: Fabric) -> dict[str, Any]:
    """What is reached while guests of other nodes are named and not."""
    n1 = fabric.nodes["n1"]
    found: dict[str, Any] = {}
    found["again"] = [n1.knows(*GUESTS), said("a1", "a2")]
    n1.knows("a3", "b2")
    found["a2 is not named"] = {name: said("a1", name) for name in ("a2", "a3")}
    found["a2 may ask"] = said("a2", "a1")
    n1.knows(*GUESTS)
    found["a2 is named"] = {name: said("a1", name) for name in ("a2", "a3")}
    found["a1 leaves"] = [n1.call("out", "a1"), sh("ip -br link", "n1").count(UPLINK), said("b1", "b2")]
    _card_again()
    n1.call("in", "a1")
    found["a1 returns"] = said("a1", "a2")
    found["a1 returns to fewer"] = _return_to_fewer(n1)
    return found


def _return_to_fewer(n1: Node) -> list[Any]:
    """A guest comes after an answer that no repair has used yet: what is left of the other network, and what a repair finds."""
    n1.call("out", "a1")
    _card_again()
    n1.call("hear", "a2", "a3")
    n1.call("in", "a1")
    left = sh(f"bridge fdb show dev {GUESTS['b1'].uplink}", "n1").count(" dst ")
    found = [left, n1.tend()]
    n1.call("out", "a1")
    sh("nft flush ruleset", "n1")
    sh(f"ip link delete {GUESTS['b1'].bridge}", "n1")
    _card_again()
    n1.call("hear", *GUESTS)
    n1.call("in", "a1")
    return [*found, said("a1", "a2"), n1.tend(), n1.tend()]


def _card_again() -> None:
    """The tap of a guest that left is gone, and with it the card of this stage."""
    sh(f"ip link add {A1.tap} type veth peer name eth0 netns a1 address {A1.order.mac}", "n1")
    sh(
        f"ip link set eth0 up mtu {MTU}; ip addr add {A1.order.address}/24 dev eth0; ip route add default via {A1.order.gateway}",
        "a1",
    )


def without_agents(fabric: Fabric) -> dict[str, Any]:
    """What is reached while an agent or a node is dead, and after a start without the control plane."""
    n1 = fabric.nodes["n1"]
    found: dict[str, Any] = {}
    n1.kill()
    found["agent killed"] = said("a1", "a2")
    sh(f"ip link delete {UPLINK}; nft flush ruleset", "n1")
    n1.start()
    found["agent started"] = [said("a1", "a2"), said("a1", "b2")]
    n1.kill()
    (n1.directory / "networks.json").write_text("{")
    n1.start()
    found["file damaged"] = [said("a1", "a2"), said("a1", "a3")]
    n1.knows(*GUESTS)
    found["control plane answered"] = said("a1", "a2")
    fabric.nodes["n3"].kill()
    sh("ip link set n3 down")
    found["node dead"] = {name: said("a1", name) for name in ("a2", "a3")}
    sh("ip link set n3 up")
    # The kernel notes a carrier up to a second later.
    ports = [("n3", None), (TRUNK, "n3")] if KIND == "vlan" else [("n3", None)]
    for port, namespace in ports:
        sh(
            f"timeout 30 sh -c 'until bridge link show dev {port} | grep -q \"state forwarding\"; do sleep 0.1; done'",
            namespace,
        )
    found["node back"] = said("a1", "a3")
    return found


def in_the_bridge_of_b() -> str:
    """What tenant B's guest on the other node says to tenant A's guest whose tap is a port of B's bridge."""
    sh(f"ip link set {A1.tap} master {GUESTS['b1'].bridge}", "n1")
    sh(f"ip route add {GUESTS['b2'].order.address} dev eth0", "a1")
    sh(f"ip route add {A1.order.address} dev eth0", "b2")
    return said("a1", "b2")


def everything() -> dict[str, Any]:
    """All of it, on one stage."""
    with scratch() as directory:
        fabric = fabric_with(directory)
        found: dict[str, Any] = {}
        try:
            found["reached"] = seen()
            found["published"] = [reached(at, "192.0.2.1", A1.order.ssh_port) for at in ("n1", "n2", None)]
            # A bridge lets four bytes more through, for a tag.
            found["sized"] = [sized(MTU), sized(MTU + (5 if KIND == "vlan" else 1))]
            for name in ("n1", "n2"):
                sh("for f in /proc/sys/net/bridge/bridge-nf-call-*; do echo 1 >$f; done", name)
            found["bridge netfilter"] = seen()
            for name in ("n1", "n2"):
                sh("for f in /proc/sys/net/bridge/bridge-nf-call-*; do echo 0 >$f; done", name)
            found["damages"] = damaged(fabric)
            found["come and go"] = come_and_go(fabric)
            found["without agents"] = without_agents(fabric)
            for node in fabric.nodes.values():
                node.rules_off()
            found["no rules"] = seen()
            found["same bridge, no rules"] = in_the_bridge_of_b()
        finally:
            fabric.end()
    return found


if __name__ == "__main__":
    json.dump(everything(), sys.stdout)
