"""Leases of tenant networks: nothing twice, everything inside its network, nothing of an allocation that is over."""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

TWICE = """
select host(x.address), x.network_id, count(*) from network_addresses x group by x.network_id, x.address having count(*) > 1
"""
VNI_TWICE = "select vni, count(*) from networks group by vni having count(*) > 1"
VNI_TO_COME = """
select w.id, w.vni from networks w cross join (select last_value, is_called from network_vnis) drawn
where w.vni >= drawn.last_value + drawn.is_called::integer
"""
OVERLAPPING = "select a.id, b.id from networks a join networks b on a.subnet && b.subnet and a.id < b.id"
OUTSIDE = """
select x.allocation_id, host(x.address), w.subnet from network_addresses x join networks w on w.id = x.network_id
where not x.address << w.subnet or x.address <= host(w.subnet + 1)::inet or x.address = host(broadcast(w.subnet))::inet
"""
OF_ANOTHER_TENANT = """
select x.allocation_id, x.network_id from network_addresses x join networks w on w.id = x.network_id
join allocations a on a.id = x.allocation_id where (a.tenant_id, a.region) <> (w.tenant_id, w.region)
"""
NAME_TWICE = """
select x.name, x.network_id, count(*) from network_addresses x where x.name is not null
group by x.network_id, x.name having count(*) > 1
"""
OVER = """
select x.allocation_id, host(x.address) from network_addresses x join allocations a on a.id = x.allocation_id
join claims c on c.id = a.claim_id where c.closed_at is not null
"""
ELSEWHERE = """
select p.port, p.node_id, p.allocation_id from published_ports p join allocations a on a.id = p.allocation_id
where a.node_id is distinct from p.node_id
"""

VLAN_TWICE = "select vlan, region, count(*) from network_vlans group by vlan, region having count(*) > 1"
VLANS_OF_ONE = "select network_id, count(*) from network_vlans group by network_id having count(*) > 1"
VLAN_ELSEWHERE = """
select v.network_id, v.vlan, v.region from network_vlans v join networks w on w.id = v.network_id where w.region <> v.region
"""
VLAN_OF_A_SITE = """
select v.vlan, v.region, s.site_id from network_vlans v
join site_segments s on v.vlan = s.provisioning_vlan or v.vlan between s.first_vlan and s.last_vlan
"""


def check_leased_networks(connection: Connection, _: Bounds) -> Verdict:
    """No address, name, port, VNI or VLAN is leased twice, in another tenant's network, or after the claim was closed."""
    verdict = Verdict(
        "networks",
        "addresses, names, ports, VNIs and VLANs are leased once, in the tenant's network, until the claim is closed",
    )
    verdict.count(connection, "select count(*) from network_addresses")
    verdict.scan(connection, TWICE, "address {0} of network {1} is leased {2} times")
    verdict.scan(connection, NAME_TWICE, "name {0} of network {1} is leased {2} times")
    verdict.scan(connection, VNI_TWICE, "VNI {0} is leased to {1} networks")
    verdict.scan(connection, VNI_TO_COME, "network {0} has VNI {1}, which the sequence has still to draw")
    verdict.scan(connection, VLAN_TWICE, "VLAN {0} of {1} is leased to {2} networks")
    verdict.scan(connection, VLANS_OF_ONE, "network {0} has {1} VLANs")
    verdict.scan(connection, VLAN_ELSEWHERE, "network {0} has VLAN {1} of {2}, which is not its region")
    verdict.scan(connection, VLAN_OF_A_SITE, "VLAN {0} of {1} is leased to a network, and one of site {2}")
    verdict.scan(connection, OVERLAPPING, "the subnets of networks {0} and {1} overlap")
    verdict.scan(connection, OUTSIDE, "allocation {0} has address {1}, which is no guest's in {2}")
    verdict.scan(
        connection, OF_ANOTHER_TENANT, "allocation {0} has an address in network {1} of another tenant or region"
    )
    verdict.scan(connection, OVER, "allocation {0} still has address {1} although its claim is closed")
    verdict.scan(connection, ELSEWHERE, "port {0} of node {1} leads to allocation {2}, which is elsewhere")
    return verdict
