"""Mutants of tenant networks on the node: rules, interfaces, repairs."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

NETWORK = "node_agent/drivers/libvirt/network"
TESTS = "tests/libvirt_driver/network"
ISOLATION = f"{TESTS}/test_isolation.py"
REPAIRS = f"{TESTS}/test_repairs.py"
PAST = f"{TESTS}/test_past_the_bridge.py"
REFUSALS = f"{TESTS}/test_refusals.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "networks: frames past the bridge reach the node",
        "agent",
        f"{NETWORK}/rules.py",
        '    iifname "{TAP_PREFIX}*" counter drop comment "past its bridge"\n',
        "",
        (f"{PAST}::test_forged_packets_past_the_bridge_arrive_without_protection_alone",),
    ),
    Mutant(
        "networks: a bridge hands link-local frames to its host",
        "agent",
        f"{NETWORK}/rules.py",
        "ether daddr & ff:ff:ff:ff:ff:f0 == 01:80:c2:00:00:00",
        "ether daddr 01:80:c2:00:00:01",
        (f"{PAST}::test_forged_packets_past_the_bridge_arrive_without_protection_alone",),
    ),
    Mutant(
        "networks: a bridge learns from link-local frames",
        "agent",
        f"{NETWORK}/links.py",
        '"no_linklocal_learn", "1"',
        '"no_linklocal_learn", "0"',
        (f"{PAST}::test_a_bridge_learns_nothing_from_frames_that_skip_its_rules",),
    ),
    Mutant(
        "networks: IPv6 stays on",
        "agent",
        f"{NETWORK}/links.py",
        '            setting.write_text("1")\n',
        "            pass\n",
        (f"{PAST}::test_taps_and_bridges_have_no_ipv6",),
    ),
    Mutant(
        "networks: the node answers ARP of a tap without a bridge",
        "agent",
        f"{NETWORK}/links.py",
        '"arp", "off")',
        '"arp", "on")',
        (f"{PAST}::test_the_node_answers_no_arp_of_a_tap_that_is_out_of_its_bridge",),
    ),
    Mutant(
        "networks: a guest of another network joins a bridge",
        "agent",
        f"{NETWORK}/conflicts.py",
        "        elif other.order.vni == order.vni:\n",
        "        elif False:\n",
        (f"{REFUSALS}::test_two_guests_do_not_share_vni_or_addresses",),
    ),
    Mutant(
        "networks: subnets of two networks overlap",
        "agent",
        f"{NETWORK}/conflicts.py",
        "        elif order.subnet.overlaps(other.order.subnet):\n",
        "        elif False:\n",
        (f"{REFUSALS}::test_two_guests_do_not_share_vni_or_addresses",),
    ),
    Mutant(
        "networks: a subnet takes the node's networks over",
        "agent",
        f"{NETWORK}/links.py",
        "        _require_apart(name, order)\n",
        "        pass\n",
        (f"{REFUSALS}::test_a_subnet_that_has_networks_of_the_node_is_refused",),
    ),
    Mutant(
        "networks: a repair makes the network of a guest that left",
        "agent",
        f"{NETWORK}/networks.py",
        'if not (guest.stage == "there" or',
        'if not (guest.stage != "coming" or',
        (f"{REFUSALS}::test_a_guest_that_is_leaving_keeps_its_network_until_it_is_taken_out_and_gets_no_other",),
    ),
    Mutant(
        "networks: a repair makes the network of a guest that has not come",
        "agent",
        f"{NETWORK}/networks.py",
        'if not (guest.stage == "there" or',
        'if not (guest.stage != "leaving" or',
        (f"{REFUSALS}::test_a_guest_that_is_coming_has_nothing_until_it_is_brought_in",),
    ),
    Mutant(
        "networks: connections stay without a readable record",
        "agent",
        f"{NETWORK}/networks.py",
        'address_of(tap, listed or "")',
        "None",
        (f"{REFUSALS}::test_connections_are_forgotten_though_the_record_is_unreadable",),
    ),
    Mutant(
        "networks: a network that is not restored stops leases",
        "agent",
        "node_agent/drivers/libvirt/driver.py",
        '                log.error("tenant_networks_not_restored", why=str(error))\n',
        "                raise OSError from error\n",
        (f"{TESTS}/test_without_libvirt.py::test_a_network_that_cannot_be_restored_keeps_no_lease_from_being_renewed",),
    ),
    Mutant(
        "networks: a guest takes another address",
        "agent",
        f"{NETWORK}/rules.py",
        "    ether type ip iifname . ether saddr . ip saddr @addresses accept\n",
        "    ether type ip accept\n",
        (f"{ISOLATION}::test_a_forged_frame_reaches_no_neighbour_and_would_without_the_rules",),
    ),
    Mutant(
        "networks: a guest reaches the node",
        "agent",
        f"{NETWORK}/rules.py",
        '    counter drop comment "node"\n',
        '    counter comment "node"\n',
        (f"{ISOLATION}::test_what_does_not_pass_and_would_without_the_rules",),
    ),
    Mutant(
        "networks: outside reaches guests by a route",
        "agent",
        f"{NETWORK}/rules.py",
        '    counter drop comment "not published"\n',
        '    counter comment "not published"\n',
        (f"{ISOLATION}::test_what_does_not_pass_and_would_without_the_rules",),
    ),
    Mutant(
        "networks: stray interfaces stay",
        "agent",
        f"{NETWORK}/networks.py",
        "                remove_link(name)\n            except",
        "                pass\n            except",
        (f"{REPAIRS}::test_a_damage_is_found_and_repaired",),
    ),
]
