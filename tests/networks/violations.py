"""Ways in which a lease of a tenant network can be wrong, planted by hand (tests/berth/violations.py)."""

from __future__ import annotations

from tests.berth.violations import planted

_MOVE = "update network_addresses set address = "
_OF_ACTIVE = " where allocation_id = {active}"
_SUBNET = "(select subnet from networks where id = network_id)"
_NO_GUEST = "which is no guest's"

NETWORKS = [
    planted(
        "an address of two guests", "networks", "is leased 2 times",
        "alter table network_addresses drop constraint network_address_once;"
        " update network_addresses set address = (select address from network_addresses where allocation_id = {longer})"
        + _OF_ACTIVE,
    ),
    planted(
        "a name of two guests", "networks", "of network",
        "alter table network_addresses drop constraint network_name_once;"
        " update network_addresses set name = 'web' where allocation_id in ({longer}, {active})",
    ),
    planted(
        "two networks that overlap", "networks", "overlap",
        "alter table networks drop constraint network_subnets_apart;"
        " insert into networks (tenant_id, region, vni, subnet) select id, 'north', 99, set_masklen(n.subnet, 23)"
        " from tenants t cross join (select subnet from networks limit 1) n where t.id = {gone}",
    ),
    planted(
        "a vni of two networks", "networks", "is leased to 2 networks",
        "alter table networks drop constraint network_vni_once;"
        " insert into networks (tenant_id, region, vni, subnet) select id, 'north', n.vni, '198.18.0.0/24'"
        " from tenants t cross join (select vni from networks limit 1) n where t.id = {gone}",
    ),
    planted(
        "a vni that is still to be drawn", "networks", "has still to draw",
        "update networks set vni = 16777215",
    ),
    planted(
        "a vlan of two networks", "networks", "is leased to 2 networks",
        "alter table network_vlans drop constraint network_vlan_once;"
        " insert into network_vlans (region, vlan, network_id) values ('north', 100, {gone}), ('north', 100, {active})",
    ),
    planted(
        "a network with two vlans", "networks", "has 2 VLANs",
        "alter table network_vlans drop constraint network_has_one_vlan;"
        " insert into network_vlans (region, vlan, network_id) values ('north', 100, {gone}), ('north', 101, {gone})",
    ),
    planted(
        "a vlan of another region", "networks", "which is not its region",
        "insert into regions (name, display_name) values ('far', 'Far');"
        " insert into network_vlans (region, vlan, network_id) select 'far', 100, id from networks limit 1",
    ),
    planted(
        "a vlan of a site", "networks", "and one of site",
        "with made as (insert into sites (name, recovery_key) values ('hall', repeat('k', 32)::bytea) returning id)"
        " insert into site_segments (site_id, provisioning_vlan, first_vlan, last_vlan, quarantine_seconds, changed_by)"
        " select id, 4000, 100, 199, 0, 'admin:a' from made;"
        " insert into network_vlans (region, vlan, network_id) values ('north', 150, {gone})",
    ),
    planted("an address outside of its network", "networks", _NO_GUEST, _MOVE + "'203.0.113.7'" + _OF_ACTIVE),
    planted(
        "the gateway's address", "networks", _NO_GUEST, _MOVE + f"host({_SUBNET} + 1)::inet" + _OF_ACTIVE
    ),
    planted(
        "the address of all", "networks", _NO_GUEST, _MOVE + f"host(broadcast({_SUBNET}))::inet" + _OF_ACTIVE
    ),
    planted(
        "an address in another tenant's network", "networks", "of another tenant or region",
        "update networks set tenant_id = {gone}",
    ),
    planted(
        "an address of an allocation that is over", "networks", "although its claim is closed",
        "insert into network_addresses (allocation_id, network_id, address)"
        " select {released}, id, host(subnet + 200)::inet from networks",
    ),
    planted(
        "a port of another node", "networks", "which is elsewhere",
        "update published_ports set node_id = (select id from nodes n where n.id <> node_id limit 1)" + _OF_ACTIVE,
    ),
]  # fmt: skip
