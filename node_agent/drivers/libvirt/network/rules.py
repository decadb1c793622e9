"""The nftables rules of tenant networks, as text for `nft -f -`. Each text is one transaction.

Rules name interfaces by prefix and guests by sets: a tap whose guest is in no set can send nothing, and a guest is added or
removed by elements alone. Table `bridge berth` checks each frame that a guest sends: its MAC address, IPv4 address and ARP
are its own, and everything else is dropped, IPv6 and VLAN tags included. Frames to 01:80:c2:00:00:0x skip a bridge's prerouting
and reach the node as from the tap: its chain `input`, and `prerouting` of `inet berth`, which also holds for a tap that is
out of its bridge, drop them; with br_netfilter the latter sees frames as from the bridge. The node asks
for a guest from any of its addresses, so only requests are bound to the networks. Table `inet berth` is between networks,
node and the rest. A chain of another table can still drop what these accept, and accepts nothing that these drop.

A network's uplink, its bridge's port to other nodes, is filtered as taps are: a frame passes if MAC and IPv4 address are those
of one guest of the network on another node. Nothing passes between uplink and node. VXLAN packets are accepted from the nodes
that have guests of their network, and no guest can send any. With VLANs a second bridge has the trunk and an access port of each
network (vlan.py); what its VLAN table forbids these rules drop as well, so that neither alone keeps networks apart.

Requests by DHCP and DNS reach the name server of the guest's own network at the node (`names`), so many of each guest in a
second, and no other guest. A request names its sender's card (`chaddr`, 28 bytes after the UDP header): dnsmasq
believes it. Requests to a DHCP server are never forwarded, and its answers are accepted from none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Literal
from uuid import UUID

from node_agent.drivers.libvirt.network.names import (
    ACCESS_PREFIX,
    BRIDGE_PREFIX,
    TAP_PREFIX,
    TRUNK_BRIDGE,
    UPLINK_PREFIX,
    access_name,
    bridge_name,
    tap_name,
    uplink_name,
)
from node_agent.drivers.libvirt.network.policy import Policy, Trunk, Uplink
from node_agent.wire.networks import NetworkOrder, host_name

TABLES = ("bridge berth", "inet berth")
ALWAYS_CLOSED = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")))
"""Addresses of no host, this host, link-local ones with the metadata address of clouds, multicast and reserved ones."""
VXLAN_PORT = 4789
VXLAN_OVERHEAD_BYTES = 50
"""RFC 7348, over IPv4."""

ASKING = "asking"
"""The set in which the kernel counts requests; its elements come and go by themselves."""
ASKING_PER_SECOND = 200
"""Packets of one guest to the name server of its network."""

_BRIDGE = f"""
table bridge berth {{
  set addresses {{ type ifname . ether_addr . ipv4_addr; {{addresses}}}}
  set cards {{ type ifname . ether_addr; {{cards}}}}
  set clients {{ typeof iifname . @th,288,48; {{clients}}}}
  set subnets {{ type ipv4_addr; flags interval; {{subnets}}}}
  set vlans {{ typeof iifname . vlan id; {{vlans}}}}
  set tags {{ typeof vlan id; {{tags}}}}
  chain prerouting {{
    type filter hook prerouting priority -300; policy accept;
    iifname "{TAP_PREFIX}*" jump frames
    iifname "{UPLINK_PREFIX}*" jump frames
    {{from_trunk}}
  }}
  chain frames {{
    ether type vlan counter drop comment "vlan"
    iifname . ether saddr != @cards counter drop comment "mac"
    arp operation request arp daddr ip != @subnets counter drop comment "arp of other networks"
    ether type arp iifname . arp saddr ether . arp saddr ip @addresses accept
    ether type arp counter drop comment "arp"
    ether type ip udp sport 67 counter drop comment "dhcp server"
    ether type ip udp dport 68 counter drop comment "dhcp answer"
    ether type ip udp dport 67 jump requests
    {{asking}}
    ether type ip iifname . ether saddr . ip saddr @addresses accept
    ether type ip counter drop comment "ipv4"
    counter drop comment "other protocols"
  }}
  chain requests {{
    iifname . @th,288,48 @clients return
    counter drop comment "dhcp of others"
  }}
  chain input {{
    type filter hook input priority -300; policy accept;
    iifname "{TAP_PREFIX}*" ether daddr & ff:ff:ff:ff:ff:f0 == 01:80:c2:00:00:00 counter drop comment "link-local"
    iifname "{UPLINK_PREFIX}*" counter drop comment "other nodes to node"
    iifname "{ACCESS_PREFIX}*" counter drop comment "access port to node"
  }}
  chain forward {{
    type filter hook forward priority -300; policy accept;
    iifname "{TAP_PREFIX}*" ether type ip udp dport 67 counter drop comment "dhcp to others"
    iifname "{UPLINK_PREFIX}*" ether type ip udp dport 67 counter drop comment "dhcp from other nodes"
    iifname "{ACCESS_PREFIX}*" oifname "{ACCESS_PREFIX}*" counter drop comment "between vlans"
    {{to_trunk}}
  }}
  chain output {{
    type filter hook output priority -300; policy accept;
    oifname "{UPLINK_PREFIX}*" counter drop comment "node to other nodes"
    oifname "{ACCESS_PREFIX}*" counter drop comment "node to access port"
    {{node_to_trunk}}
  }}
}}
"""
_INET = f"""
table inet berth {{
  set closed {{ type ipv4_addr; flags interval; auto-merge; {{closed}}}}
  set guests {{ type ipv4_addr; {{guests}}}}
  set bridges {{ type ifname . ifname; {{bridges}}}}
  map published {{ type ipv4_addr . inet_service : ipv4_addr . inet_service; {{published}}}}
  set gateways {{ type ifname . ipv4_addr; {{gateways}}}}
  set servers {{ type ipv4_addr; {{servers}}}}
  set {ASKING} {{ type ether_addr; size 65535; flags dynamic,timeout; timeout 1m; }}
  set peers {{ typeof ip saddr . @th,96,24; {{peers}}}}
  chain prerouting {{
    type filter hook prerouting priority -300; policy accept;
    iifname "{TAP_PREFIX}*" counter drop comment "past its bridge"
    iifname "{UPLINK_PREFIX}*" counter drop comment "uplink past its bridge"
    iifname "{ACCESS_PREFIX}*" counter drop comment "access port past its bridge"
    {{past_trunk}}
  }}
  chain underlay {{
    type filter hook input priority -10; policy accept;
    {{underlay}}
  }}
  chain published_outside {{
    type nat hook prerouting priority -100; policy accept;
    iifname "{BRIDGE_PREFIX}*" accept
    iifname "{TRUNK_BRIDGE}" accept comment "br_netfilter: frames between nodes"
    dnat ip to ip daddr . tcp dport map @published
  }}
  chain published_inside {{
    type nat hook output priority -100; policy accept;
    dnat ip to ip daddr . tcp dport map @published
  }}
  chain forward {{
    type filter hook forward priority 0; policy accept;
    iifname . oifname @bridges accept comment "br_netfilter: within a network"
    iifname "{BRIDGE_PREFIX}*" jump from_guest
    oifname "{BRIDGE_PREFIX}*" jump to_guest
  }}
  chain from_guest {{
    udp dport {VXLAN_PORT} counter drop comment "vxlan"
    oifname "{BRIDGE_PREFIX}*" counter drop comment "other network"
    ct state established,related accept
    ip saddr != @guests counter drop comment "no guest"
    ip daddr @closed counter drop comment "closed"
    {{outbound}}
  }}
  chain to_guest {{
    ct state established,related accept
    ct status dnat accept
    counter drop comment "not published"
  }}
  chain input {{
    type filter hook input priority 0; policy accept;
    iifname "{BRIDGE_PREFIX}*" jump to_node
    iifname != "lo" meta l4proto {{ tcp, udp }} ip daddr @servers th dport 53 counter drop comment "names from outside"
  }}
  chain to_node {{
    {{services}}
    ct state established,related accept
    icmp type echo-request limit rate 20/second accept
    counter drop comment "node"
  }}
  chain names {{
    update @{ASKING} {{ ether saddr limit rate over {ASKING_PER_SECOND}/second burst {2 * ASKING_PER_SECOND} packets }} \
      counter drop comment "asks too often"
    accept
  }}
  chain outbound {{
    type nat hook postrouting priority 100; policy accept;
    {{masquerade}}
  }}
}}
"""


# A guest that has no address yet has none as source; its MAC address was checked before.
_ASKING = f'iifname "{TAP_PREFIX}*" ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 accept'
_SERVICES = """iifname . ip daddr @gateways meta l4proto { tcp, udp } th dport 53 goto names
    iifname . ip daddr @gateways udp sport 68 udp dport 67 goto names
    ip daddr 255.255.255.255 udp sport 68 udp dport 67 goto names"""
_MASQUERADE = f'ip saddr @guests oifname != "{BRIDGE_PREFIX}*" oifname != "{TRUNK_BRIDGE}" masquerade'
# A packet with a peer's address that arrives on another interface than that peer's is forged.
_UNDERLAY = f"""udp dport {VXLAN_PORT} fib saddr . iif oif missing counter drop comment "not from its interface"
    udp dport {VXLAN_PORT} ip daddr {{local}} ip saddr . @th,96,24 @peers accept
    udp dport {VXLAN_PORT} counter drop comment "no peer\""""
_TRUNK = {
    "from_trunk": """iifname "{interface}" vlan id @tags accept
    iifname "{interface}" counter drop comment "no network's vlan\"""",
    "to_trunk": """oifname "{interface}" iifname . vlan id @vlans accept
    oifname "{interface}" counter drop comment "not its vlan\"""",
    "node_to_trunk": 'oifname "{interface}" counter drop comment "node to trunk"',
    "past_trunk": 'iifname "{interface}" counter drop comment "trunk past its bridge"',
}
"""By its place in the tables: rules of the interface at which VLANs of tenant networks are tagged."""


@dataclass(frozen=True)
class Remote:
    """A guest of network `vni` on another node, whose underlay address is `underlay`; `names` are its own in the network."""

    vni: int
    mac: str
    address: IPv4Address
    underlay: IPv4Address
    names: tuple[str, ...] = ()

    @property
    def uplink(self) -> str:
        """The name of its network's uplink."""
        return uplink_name(self.vni)


@dataclass(frozen=True)
class Guest:
    """One guest in its network.

    `stage`: nothing is made for a guest that is `coming` until it is brought in, nor for one
    that is `leaving` once it has no tap.
    """

    allocation_id: UUID
    order: NetworkOrder
    stage: Literal["coming", "there", "leaving"] = "there"

    @property
    def tap(self) -> str:
        """The name of its tap."""
        return tap_name(self.allocation_id)

    @property
    def names(self) -> tuple[str, ...]:
        """Its names in the network, its host name first. An order of an earlier control plane names none."""
        return tuple(self.order.names) or (host_name(self.allocation_id),)

    @property
    def bridge(self) -> str:
        """The name of its network's bridge."""
        return bridge_name(self.order.vni)

    @property
    def uplink(self) -> str:
        """The name of its network's uplink."""
        return uplink_name(self.order.vni)

    @property
    def access(self) -> str:
        """The name of its network's access port."""
        return access_name(self.order.vni)


def replacement(policy: Policy, guests: Iterable[Guest], remotes: Iterable[Remote] = ()) -> str:
    """Both tables as they should be, in place of what is there. Connections go on."""
    elements = {**_elements(policy, guests), "peers": []}
    for one in remotes:
        elements["cards"].append(f'"{one.uplink}" . {one.mac}')
        elements["addresses"].append(f'"{one.uplink}" . {one.mac} . {one.address}')
        if (peer := f"{one.underlay} . {one.vni}") not in elements["peers"]:
            elements["peers"].append(peer)
    filled = {name: f"elements = {{ {', '.join(found)} }}; " if found else "" for name, found in elements.items()}
    vxlan = policy.uplink if isinstance(policy.uplink, Uplink) else None
    interface = policy.uplink.interface if isinstance(policy.uplink, Trunk) else None
    closed = ", ".join(map(str, sorted({*ALWAYS_CLOSED, *policy.closed, *(vxlan.peers if vxlan else ())})))
    filled |= {place: _filled(rules, {"interface": interface}) if interface else "" for place, rules in _TRUNK.items()}
    bridge = _filled(_BRIDGE, {**filled, "asking": _ASKING if policy.naming else ""})
    inet = _filled(
        _INET,
        {
            **filled,
            "underlay": _filled(_UNDERLAY, {"local": str(vxlan.underlay)}) if vxlan else "",
            "closed": f"elements = {{ {closed} }}; ",
            "services": _SERVICES if policy.naming else "",
            "outbound": "accept" if policy.egress else 'counter drop comment "outbound"',
            "masquerade": _MASQUERADE if policy.egress else "",
        },
    )
    fresh = "".join(f"table {table}\ndelete table {table}\n" for table in TABLES)
    return fresh + bridge + inet


def addition(policy: Policy, guest: Guest) -> str:
    """The elements of one guest. Repeating it changes nothing."""
    return _changed("add", _elements(policy, [guest]))


def removal(policy: Policy, guest: Guest, left: Iterable[Guest]) -> str:
    """Take one guest out; what it shares with those that are `left` stays. The elements must be there."""
    shared = _elements(policy, left)
    own = _elements(policy, [guest])
    return _changed("delete", {name: [one for one in found if one not in shared[name]] for name, found in own.items()})


def address_of(tap: str, listed: str) -> str | None:
    """The address of the guest with this tap, by rules as nftables lists them; None if they have none."""
    found = re.search(rf'"{tap}" \. [0-9a-f:]{{17}} \. ([0-9.]+)', listed)
    return found and found[1]


def _elements(policy: Policy, guests: Iterable[Guest]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {
        name: []
        for name in (
            "cards",
            "clients",
            "addresses",
            "subnets",
            "vlans",
            "tags",
            "guests",
            "bridges",
            "gateways",
            "servers",
            "published",
        )
    }
    for guest in guests:
        order = guest.order
        found["cards"].append(f'"{guest.tap}" . {order.mac}')
        found["clients"].append(f'"{guest.tap}" . 0x{order.mac.replace(":", "")}')
        found["addresses"].append(f'"{guest.tap}" . {order.mac} . {order.address}')
        found["guests"].append(str(order.address))
        found["published"] += [
            f"{policy.host} . {item.port} : {order.address} . {item.guest_port}" for item in order.published
        ]
        for name, shared in (
            ("subnets", str(order.subnet)),
            ("bridges", f'"{guest.bridge}" . "{guest.bridge}"'),
            ("gateways", f'"{guest.bridge}" . {order.gateway}'),
            ("servers", str(order.gateway)),
            *_tagged(policy, guest),
        ):
            if shared not in found[name]:
                found[name].append(shared)
    return found


def _tagged(policy: Policy, guest: Guest) -> list[tuple[str, str]]:
    if not isinstance(policy.uplink, Trunk) or guest.order.vlan is None:
        return []
    return [("vlans", f'"{guest.access}" . {guest.order.vlan}'), ("tags", str(guest.order.vlan))]


def _changed(verb: str, elements: dict[str, list[str]]) -> str:
    of_bridges = ("cards", "clients", "addresses", "subnets", "vlans", "tags")
    return "".join(
        f"{verb} element {'bridge' if name in of_bridges else 'inet'} berth {name} {{ {', '.join(found)} }}\n"
        for name, found in elements.items()
        if found
    )


def _filled(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text
