"""Mutants of DHCP and DNS in tenant networks: rules, processes, and names that are leased."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

NETWORK = "node_agent/drivers/libvirt/network"
NAMING = "tests/libvirt_driver/network/naming"
NAMES = f"{NAMING}/test_names.py"
FILES = f"{NAMING}/test_files.py"
ELSEWHERE = f"{NAMING}/test_elsewhere.py"
LEASED = "tests/networks/test_names.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "names: a guest asks the name server of another network",
        "agent",
        f"{NETWORK}/rules.py",
        "iifname . ip daddr @gateways meta l4proto",
        "meta l4proto",
        (f"{NAMES}::test_nothing_else_of_the_node_is_reached_and_would_be_without_the_rules",),
    ),
    Mutant(
        "names: name servers answer hosts outside",
        "agent",
        f"{NETWORK}/rules.py",
        'th dport 53 counter drop comment "names from outside"',
        'th dport 53 counter comment "names from outside"',
        (f"{NAMES}::test_nothing_else_of_the_node_is_reached_and_would_be_without_the_rules",),
    ),
    Mutant(
        "names: a guest asks without a bound",
        "agent",
        f"{NETWORK}/rules.py",
        'counter drop comment "asks too often"',
        'counter accept comment "asks too often"',
        (f"{NAMES}::test_a_guest_that_floods_its_server_is_bounded_and_another_is_answered",),
    ),
    Mutant(
        "names: what the kernel counts is taken for a damage",
        "agent",
        f"{NETWORK}/programs.py",
        '_COUNTED.sub(r"\\1", text)',
        "text",
        (f"{NAMES}::test_a_guest_that_floods_its_server_is_bounded_and_another_is_answered",),
    ),
    Mutant(
        "names: requests by DHCP reach other guests",
        "agent",
        f"{NETWORK}/rules.py",
        'ether type ip udp dport 67 counter drop comment "dhcp to others"',
        'ether type ip udp dport 67 counter comment "dhcp to others"',
        (
            "tests/libvirt_driver/network/test_isolation.py::test_a_forged_frame_reaches_no_neighbour_and_would_without_the_rules",
        ),
    ),
    Mutant(
        "names: a guest asks for the card of another guest",
        "agent",
        f"{NETWORK}/rules.py",
        'counter drop comment "dhcp of others"',
        'counter comment "dhcp of others"',
        (f"{NAMING}/test_declining.py::test_a_guest_declines_no_other_guests_address_and_would_without_the_rule",),
    ),
    Mutant(
        "names: a guest without an address asks in vain",
        "agent",
        f"{NETWORK}/rules.py",
        "ip saddr 0.0.0.0 ip daddr 255.255.255.255",
        "ip saddr 0.0.0.1 ip daddr 255.255.255.255",
        (f"{NAMES}::test_a_guest_gets_by_dhcp_exactly_what_is_leased_to_it",),
    ),
    Mutant(
        "names: a client takes a name by DHCP",
        "agent",
        f"{NETWORK}/dhcp.py",
        '"--dhcp-ignore-names", ',
        "",
        (FILES,),
    ),
    Mutant(
        "names: queries for the network's addresses are forwarded",
        "agent",
        f"{NETWORK}/dhcp.py",
        '    own += [f"--local=/{zone}/" for zone in reverse_zones(subnet)]\n',
        "",
        (f"{FILES}::test_arguments_are_those_of_one_network",),
    ),
    Mutant(
        "names: files are not read again",
        "agent",
        f"{NETWORK}/dhcp.py",
        "        elif not knows:\n",
        "        elif False:\n",
        (f"{NAMES}::test_the_next_agent_takes_over_what_runs_and_it_learns_of_changes",),
    ),
    Mutant(
        "names: a process stays at a bridge that is gone",
        "agent",
        f"{NETWORK}/dhcp.py",
        "{network.order.vni}-{number}",
        "{network.order.vni}-1",
        (f"{NAMES}::test_a_damage_is_repaired",),
    ),
    Mutant(
        "names: strays go on",
        "agent",
        f"{NETWORK}/dhcp.py",
        "                if self.end(vni):",
        "                if vni < 0:",
        (f"{NAMES}::test_the_process_ends_with_the_last_guest_and_strays_are_ended",),
    ),
    Mutant(
        "names: the agent's user serves names",
        "agent",
        f"{NETWORK}/dhcp.py",
        '("--reuid", user, "--regid", group, "--clear-groups", "--no-new-privs")',
        '("--no-new-privs",)',
        (f"{NAMES}::test_a_process_listens_at_its_bridge_alone_with_few_rights",),
    ),
    Mutant(
        "names: guests of other nodes have none",
        "agent",
        f"{NETWORK}/span.py",
        "one.underlay, tuple(one.names))",
        "one.underlay, ())",
        (f"{ELSEWHERE}::test_a_name_is_resolved_whichever_node_its_guest_is_on",),
    ),
    Mutant(
        "names: any text is a guest's name",
        "agent",
        "node_agent/wire/networks.py",
        "Field(pattern=LABEL)",
        "Field()",
        (f"{FILES}::test_a_name_that_is_no_label_is_refused",),
    ),
    Mutant(
        "names: a host name can be leased",
        "worker",
        "orchestrator/networks/rules.py",
        'label.startswith("berth-")',
        "False",
        (f"{LEASED}::test_a_name_is_leased_if_it_is_a_label",),
    ),
    Mutant(
        "names: an agent that serves none gets them",
        "worker",
        "orchestrator/tasks/store/tasks.py",
        "{} if self.names_guests else",
        "{} if True else",
        (f"{LEASED}::test_a_rebuild_keeps_the_name_whatever_the_allocation_is_called_now",),
    ),
    Mutant(
        "names: a second guest of a name fails the provision",
        "worker",
        "orchestrator/networks/store/leases.py",
        "where x.network_id = :network_id and x.name = :name)",
        "where x.network_id = :network_id and false)",
        (f"{LEASED}::test_a_name_is_one_guests_until_its_claim_is_closed",),
    ),
]
