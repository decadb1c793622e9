"""CHECK constraints of segments and of ports of machines."""

from __future__ import annotations

from tests.schema.checks import Check, one_of, whole_or_absent
from tests.support.rows import LATER, NOW

_RETURNED = {"returned_at": NOW, "free_at": LATER}
_PROVEN = {"proven_at": NOW, "isolation": "vlan"}

CHECKS = {
    "provisioning_vlan_is_valid": Check(
        "site_segments", ({"provisioning_vlan": 0}, {"provisioning_vlan": 4095}), ({"provisioning_vlan": 4094},)
    ),
    "tenant_vlans_are_valid": Check(
        "site_segments",
        ({"first_vlan": 0, "provisioning_vlan": 4000}, {"last_vlan": 4095}, {"first_vlan": 2000}),
        ({"first_vlan": 1999}, {"last_vlan": 4094}),
    ),
    "provisioning_is_no_tenants": Check(
        "site_segments",
        ({"provisioning_vlan": 1000}, {"provisioning_vlan": 1999}),
        ({"provisioning_vlan": 999}, {"provisioning_vlan": 2000}),
    ),
    "segment_quarantine_is_bounded": Check(
        "site_segments", ({"quarantine_seconds": -1}, {"quarantine_seconds": 604_801}), ({"quarantine_seconds": 0},)
    ),
    "tenant_vlan_is_valid": Check("tenant_segments", ({"vlan": 0}, {"vlan": 4095}), ({"vlan": 1}, {"vlan": 4094})),
    "tenant_segment_return_is_whole": Check("tenant_segments", whole_or_absent(_RETURNED), ({}, _RETURNED)),
    "tenant_segment_is_free_later": Check(
        "tenant_segments", ({"returned_at": LATER, "free_at": NOW},), (_RETURNED, {"returned_at": NOW, "free_at": NOW})
    ),
    "switch_name": Check(
        "node_ports",
        ({"switch": ""}, {"switch": "Leaf"}, {"switch": "-a"}, {"switch": "a" * 64}),
        ({"switch": "a" * 63},),
    ),
    "switch_port_name": Check(
        "node_ports",
        ({"port": ""}, {"port": "-n"}, {"port": "a b"}, {"port": "a" * 65}),
        ({"port": "Eth1/2:3"}, {"port": "a" * 64}),
    ),
    "switch_port_mac": Check(
        "node_ports",
        ({"mac": ""}, {"mac": "52:54:00:00:00:0G"}, {"mac": "52:54:00:00:00"}, {"mac": "52:54:00:00:00:0A"}),
        ({"mac": "52:54:00:00:00:0a"},),
    ),
    "node_segment_place": one_of("node_segments", "place", "provisioning", "tenant", "shut"),
    "node_segment_isolation": Check(
        "node_segments", ({**_PROVEN, "isolation": "pkey"},), (_PROVEN, {**_PROVEN, "isolation": "none"})
    ),
    "node_segment_found_is_bounded": Check(
        "node_segments", ({"found": '"' + "x" * 16_383 + '"'},), ({"found": '"' + "x" * 16_382 + '"'},)
    ),
    "node_segment_is_leased": Check(
        "node_segments",
        ({"vlan": 1001}, {"vlan": None}),
        ({}, {"vlan": None, "tenant_vlan": None}, {"place": "shut", "vlan": None}),
    ),
    "node_segment_proof_is_whole": Check("node_segments", whole_or_absent(_PROVEN), ({}, _PROVEN)),
}
