"""Mutants of VLANs as uplinks: what is leased, and what a node makes of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

NETWORK = "node_agent/drivers/libvirt/network"
TESTS = "tests/libvirt_driver/network/spanning/test_vlans.py"
REPAIRED = "tests/libvirt_driver/network/spanning/test_spanning.py::test_a_damaged_uplink_is_found_and_repaired"
CHECK = "tests/libvirt_driver/network/test_check.py"
STORE = "orchestrator/networks/store/vlans.py"
LEASED = "tests/networks/test_vlans.py"
LEFT = "tests/networks/test_left_vlans.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "vlans: another network has a VLAN in its quarantine",
        "networks",
        STORE,
        "    where v.region = :region and v.left_at < clock_timestamp() - make_interval(secs => cast(:quarantine as float8))",
        "    where v.region = :region and v.left_at < clock_timestamp() - make_interval(secs => 0 * cast(:quarantine as float8))",
        (f"{LEFT}::test_a_vlan_that_was_left_is_another_networks_after_the_quarantine",),
    ),
    Mutant(
        "vlans: a node without an inventory since gives its VLANs up",
        "networks",
        STORE,
        "      and v.left_at < cast(:clean_since as timestamptz)\n",
        "      and v.left_at < greatest(cast(:clean_since as timestamptz), 'infinity')\n",
        (f"{LEFT}::test_a_vlan_stays_leased_until_each_node_has_sent_an_inventory",),
    ),
    Mutant(
        "vlans: a guest of a closed claim carries none",
        "networks",
        STORE,
        "a.node_id <> n.id or c.closed_at < n.inventory_after)",
        "a.node_id <> n.id or c.closed_at < n.created_at)",
        (f"{LEFT}::test_no_vlan_is_leased_while_a_node_has_guests_that_nothing_explains",),
    ),
    Mutant(
        "vlans: after a restore one that was left is taken again",
        "networks",
        STORE,
        "        if held.is_left:\n",
        "        if False:\n",
        (f"{LEFT}::test_after_a_restore_a_vlan_that_was_left_may_be_another_networks",),
    ),
    Mutant(
        "vlans: a guest without VLANs uses one",
        "networks",
        STORE,
        "n on n.id = a.node_id\n    where x.network_id = v.network_id and :feature = any (n.agent_features)) as is_left",
        "n on n.id = a.node_id\n    where x.network_id = v.network_id and cast(:feature as text) is not null) as is_left",
        (f"{LEFT}::test_a_guest_without_vlans_keeps_none_in_use",),
    ),
    Mutant(
        "vlans: the network is locked before the pool",
        "networks",
        STORE,
        "    await tx.execute(LOCK_POOL)\n    return clean\n",
        "    return clean\n",
        (f"{LEASED}::test_a_lease_waits_for_the_pool_before_it_locks_the_network",),
    ),
    Mutant(
        "vlans: orphans carry none",
        "networks",
        STORE,
        "where o.node_id = n.id and o.state <> 'destroyed') or exists (\n",
        "where o.node_id = n.id and o.state = 'destroyed') or exists (\n",
        (f"{LEFT}::test_no_vlan_is_leased_while_a_node_has_guests_that_nothing_explains",),
    ),
    Mutant(
        "vlans: those of sites are leased",
        "networks",
        STORE,
        "where vlan.vlan = s.provisioning_vlan or vlan.vlan between s.first_vlan and s.last_vlan)",
        "where vlan.vlan = s.provisioning_vlan and vlan.vlan between s.first_vlan and s.last_vlan)",
        (f"{LEASED}::test_vlans_of_sites_are_left_out",),
    ),
    Mutant(
        "vlans: they are leased while a node is awaited",
        "networks",
        STORE,
        "    if awaited is not None:\n",
        "    if False:\n",
        (f"{LEFT}::test_after_a_restore_no_vlan_is_leased_while_a_node_is_awaited",),
    ),
    Mutant(
        "vlans: a retired node is awaited",
        "networks",
        STORE,
        "n.region = :region and n.state <> 'retired' and :feature = any (n.agent_features) order by n.name limit 1\n",
        "n.region = :region and :feature = any (n.agent_features) order by n.name limit 1\n",
        (f"{LEFT}::test_a_retired_node_is_awaited_no_more",),
    ),
    Mutant(
        "vlans: a network that is used again counts as left",
        "networks",
        STORE,
        "update network_vlans set left_at = null where",
        "update network_vlans set left_at = left_at where",
        (f"{LEFT}::test_the_same_network_has_its_vlan_again_at_once",),
    ),
    Mutant(
        "vlans: an agent of the version before is named one",
        "networks",
        "orchestrator/tasks/store/tasks.py",
        '            left_out["vlan"] = None\n',
        "            pass\n",
        (f"{LEASED}::test_a_network_that_has_a_vlan_is_not_named_it_on_a_node_of_another_kind",),
    ),
    Mutant(
        "vlans: a node learns of guests on nodes of another kind",
        "networks",
        "orchestrator/networks/store/span.py",
        "        and (:vlan = any (n.agent_features)) = (select",
        "        or (:vlan = any (n.agent_features)) = (select",
        (f"{LEASED}::test_a_node_learns_of_guests_on_nodes_of_its_kind_and_others_are_logged",),
    ),
    Mutant(
        "vlans: a changed uplink of another node goes unnoticed",
        "networks",
        "orchestrator/tasks/store/heartbeats.py",
        "or (:vlan = any (n.agent_features)) <> b.by_vlan\n",
        "or (:vlan = any (n.agent_features)) <> (:vlan = any (n.agent_features))\n",
        (f"{LEASED}::test_a_node_learns_of_guests_on_nodes_of_its_kind_and_others_are_logged",),
    ),
    Mutant(
        "vlans: two networks of a node share one",
        "agent",
        f"{NETWORK}/conflicts.py",
        "        elif order.vlan is not None and other.order.vlan == order.vlan:\n",
        "        elif False:\n",
        (f"{TESTS}::test_a_node_trusts_no_lease_of_a_vlan",),
    ),
    Mutant(
        "vlans: an interface with an address is taken",
        "agent",
        f"{NETWORK}/vlan.py",
        "    if link.bridge is None and addresses:\n",
        "    if False:\n",
        (f"{TESTS}::test_an_interface_that_cannot_be_used_is_named_with_the_reason",),
    ),
    Mutant(
        "vlans: an interface with IPv6 addresses alone is taken",
        "agent",
        f"{NETWORK}/vlan.py",
        "    addresses = (*link.addresses, *link.global_ipv6)\n",
        "    addresses = link.addresses\n",
        (f"{TESTS}::test_an_interface_that_cannot_be_used_is_named_with_the_reason",),
    ),
    Mutant(
        "vlans: the check passes an interface of another bridge",
        "agent",
        "node_agent/checks/networks.py",
        "    if master not in (None, TRUNK_BRIDGE):\n",
        "    if False:\n",
        (f"{CHECK}::test_a_trunk_that_cannot_be_used_is_named_with_the_remedy",),
    ),
    Mutant(
        "vlans: the trunk learns addresses",
        "agent",
        f"{NETWORK}/vlan.py",
        '_PORT = {"learning": False,',
        '_PORT = {"learning": True,',
        (f"{REPAIRED}[vlan-an access port that learns]",),
    ),
    Mutant(
        "vlans: a trunk keeps the VLANs that something else adds",
        "agent",
        f"{NETWORK}/vlan.py",
        "sorted(there - wanted)]\n",
        "sorted(there - there)]\n",
        (f"{REPAIRED}[vlan-a vlan too many at the trunk]",),
    ),
    Mutant(
        "vlans: no sweeper ends a lease",
        "networks",
        "worker/sweepers/retention.py",
        "in await find_regions_with_left_vlans(context, quarantine_seconds):\n",
        "in (await find_regions_with_left_vlans(context, quarantine_seconds))[:0]:\n",
        (f"{LEFT}::test_what_no_lease_asks_for_is_free_again_too",),
    ),
    Mutant(
        "vlans: no sweeper begins a quarantine",
        "networks",
        "worker/sweepers/retention.py",
        ".inc(await mark_left_vlans(context, limit))",
        ".inc(await mark_left_vlans(context, 0 * limit))",
        (f"{LEFT}::test_the_vlan_of_a_network_without_a_guest_begins_its_quarantine",),
    ),
]
