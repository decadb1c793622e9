"""CHECK constraints of tenant networks."""

from __future__ import annotations

from tests.schema.checks import Check

CHECKS = {
    "network_vni_is_valid": Check("networks", ({"vni": 0}, {"vni": 2**24}), ({"vni": 1}, {"vni": 2**24 - 1})),
    "network_vlan_is_valid": Check("network_vlans", ({"vlan": 0}, {"vlan": 4_095}), ({"vlan": 1}, {"vlan": 4_094})),
    "network_subnet_is_ipv4": Check(
        "networks",
        ({"subnet": "fd00::/24"}, {"subnet": "10.64.0.0/30"}, {"subnet": "8.0.0.0/7"}),
        ({"subnet": "10.64.0.0/29"}, {"subnet": "10.0.0.0/8"}),
    ),
    "network_address_is_a_host": Check(
        "network_addresses", ({"address": "10.64.0.2/24"}, {"address": "fd00::2"}), ({"address": "10.64.0.2"},)
    ),
    "network_name_is_a_label": Check(
        "network_addresses",
        (
            {"name": ""},
            {"name": "a b"},
            {"name": "a.b"},
            {"name": "A"},
            {"name": "-a"},
            {"name": "a" * 64},
            {"name": "a\n"},
        ),
        ({"name": "a"}, {"name": "a-1"}, {"name": "a" * 63}, {"name": None}),
    ),
    "node_underlay_is_a_host": Check(
        "nodes", ({"underlay": "192.0.2.1/24"}, {"underlay": "fd00::2"}), ({"underlay": "192.0.2.1"},)
    ),
    "published_port_is_valid": Check(
        "published_ports", ({"port": 0}, {"port": 65_536}), ({"port": 1}, {"port": 65_535})
    ),
    "published_guest_port_is_valid": Check(
        "published_ports", ({"guest_port": 0}, {"guest_port": 65_536}), ({"guest_port": 1}, {"guest_port": 65_535})
    ),
}
