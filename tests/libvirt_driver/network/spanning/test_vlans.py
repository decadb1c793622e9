"""VLANs at the trunk: what guests and the switch can send into them, by each guard alone, and a trunk that cannot be used."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.libvirt.network.conflicts import conflict
from node_agent.drivers.libvirt.network.links import Link, read_links
from node_agent.drivers.libvirt.network.names import INTERFACE_NAME_MAX, TRUNK_BRIDGE, access_name
from node_agent.drivers.libvirt.network.policy import Policy, Trunk
from node_agent.drivers.libvirt.network.rules import Guest, addition, removal, replacement
from node_agent.drivers.libvirt.network.vlan import read_tags, trunk_problem, vlans_of
from node_agent.wire.networks import VNI_MAX
from tests.libvirt_driver.definitions import guest as defined
from tests.libvirt_driver.network.spanning.hopping import TAGS
from tests.libvirt_driver.network.spanning.kernels import VIRTUAL_SECONDS, played
from tests.libvirt_driver.network.stage import A1, A2, B1, CLOSED, why_no_networks

pytestmark = pytest.mark.timeout(VIRTUAL_SECONDS + 300)

TRUNK = Trunk("eth1", IPv4Address("192.0.2.1"), 1500)
POLICY = Policy(IPv4Address("192.0.2.1"), CLOSED, False, TRUNK)
HOPS = [*TAGS, "a provider's tag"]
REACHED = "a2 10.66.1.11"


def in_vlan(guest: Guest, vlan: int | None) -> Guest:
    """The guest, whose order names this VLAN."""
    return replace(guest, order=guest.order.model_copy(update={"vlan": vlan}))


@pytest.fixture(scope="module")
def found() -> Any:
    """What one run found."""
    return played("tests.libvirt_driver.network.spanning.hopping", "vlan")


@pytest.mark.full
@pytest.mark.parametrize("frame", HOPS)
def test_a_guest_hops_into_no_other_vlan_while_one_of_both_guards_is_there(found: Any, frame: str) -> None:
    for guards in ("hops", "hops, no rules", "hops, no table"):
        assert found[guards][frame] == [False, False], guards


@pytest.mark.full
def test_without_both_guards_tags_hop(found: Any) -> None:
    into_b, native = zip(*found["hops, neither"].values(), strict=True)
    assert any(into_b)
    assert any(native)


@pytest.mark.full
def test_the_trunk_carries_the_vlans_of_networks_alone(found: Any) -> None:
    assert found["carried"] == [101, 102], "no other one, and nothing untagged"


@pytest.mark.full
def test_the_switch_brings_in_tagged_frames_of_the_networks_guests_alone(found: Any) -> None:
    arrived = [name for name, has in found["from the switch"].items() if has]
    assert arrived == ["tagged"]
    assert any(found["from the switch, neither"].values())


@pytest.mark.full
def test_the_node_is_not_reached_at_its_trunk(found: Any) -> None:
    assert (found["to the node"], found["to the node, neither"]) == (False, True)


@pytest.mark.full
def test_the_table_and_the_rules_are_restored(found: Any) -> None:
    assert found["repaired"] == [True, True, REACHED, ""]


@pytest.mark.full
def test_an_interface_that_is_anothers_is_left_alone_and_taken_once_it_is_free(found: Any) -> None:
    seen = found["unusable"]
    assert seen["a port of another bridge"][1:] == [False, True], "it stays where it is"
    assert "BERTH_LIBVIRT_NETWORK_UPLINK_INTERFACE: trunk0 is a port of foreign" in seen["a new guest"]
    assert seen["free again"] == [True, True, REACHED]
    assert seen["with an address"] == ["", True, False], "the agent starts"
    assert seen["without it"] == [True, REACHED, False]
    assert seen["renamed"][0] == ""
    assert seen["named again"] == [True, REACHED, False]


@pytest.mark.full
def test_a_vlan_goes_with_the_last_guest_and_the_bridge_with_the_setting(found: Any) -> None:
    seen = found["ends"]
    assert seen["one left"] == ["102"]
    assert seen["another setting"] == [["berthb", "bertht"], 0], "the networks go on, and end at the node"


def test_a_network_has_the_vlan_of_its_orders() -> None:
    assert vlans_of([in_vlan(A1, 101), A2, in_vlan(B1, 102)]) == {1: 101, 2: 102}
    assert vlans_of([A1, B1]) == {}


@pytest.mark.parametrize(
    ("guest", "others", "words"),
    [
        (in_vlan(A1, 101), [in_vlan(A2, 101), in_vlan(B1, 102)], None),
        (in_vlan(A1, 101), [A2], None),
        (A1, [in_vlan(A2, 101)], None),
        (A1, [B1], None),
        (in_vlan(A1, 101), [in_vlan(A2, 102)], "has VLAN 101, and VLAN 102 by"),
        (in_vlan(A1, 101), [in_vlan(B1, 101)], "has VLAN 101, as"),
    ],
)
def test_a_node_trusts_no_lease_of_a_vlan(guest: Guest, others: list[Guest], words: str | None) -> None:
    problem = conflict(guest, others)
    assert problem is None if words is None else words in (problem or "")


def test_the_rules_are_those_of_nftables_and_name_each_vlan_at_its_port() -> None:
    guests = [in_vlan(A1, 101), in_vlan(A2, 101), in_vlan(B1, 102)]
    text = replacement(POLICY, guests)
    assert '"bertha1" . 101, "bertha2" . 102' in text
    assert addition(POLICY, guests[2]).count("102") == 2
    assert "vlans" not in removal(POLICY, guests[0], guests[1:]), "another guest of the network stays"
    assert "vlans" in removal(POLICY, guests[2], guests[:2])
    if (reason := why_no_networks()) is not None:
        pytest.skip(reason)
    changes = f"{text}{removal(POLICY, guests[2], guests[:2])}{addition(POLICY, guests[2])}"
    done = subprocess.run(
        ["unshare", "--net", "nft", "-f", "-"], input=changes, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def link(**changes: Any) -> Link:
    """The trunk's interface."""
    return replace(Link("eth1", "", None, True, (), 1500, "", {}, {}, None), **changes)


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({}, "eth1 is not there"),
        ({"eth1": link()}, None),
        ({"eth1": link(is_up=False)}, None),
        ({"eth1": link(bridge=TRUNK_BRIDGE)}, None),
        ({"eth1": link(bridge="br0")}, "eth1 is a port of br0"),
        ({"eth1": link(addresses=("192.0.2.1/24",))}, "eth1 has the address 192.0.2.1/24"),
        ({"eth1": link(global_ipv6=("2001:db8::1/64",))}, "eth1 has the address 2001:db8::1/64"),
        ({"eth1": link(mtu=1400)}, "eth1 has an MTU of 1400, below the 1500 of guests"),
    ],
)
def test_an_interface_that_cannot_be_used_is_named_with_the_reason(there: dict[str, Link], words: str | None) -> None:
    problem = trunk_problem(TRUNK, there)
    assert problem is None if words is None else f"BERTH_LIBVIRT_NETWORK_UPLINK_INTERFACE: {words}" == problem


ADDRESSES = """[{"ifname":"eth1","flags":["UP"],"mtu":1500,"addr_info":[
{"family":"inet6","local":"2001:db8::1","prefixlen":64,"scope":"global"},
{"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"}]}]"""


def test_global_addresses_of_ipv6_are_read_apart() -> None:
    read = read_links(ADDRESSES)["eth1"]
    assert (read.addresses, read.global_ipv6) == ((), ("2001:db8::1/64",))


SHOWN = """[{"ifname":"eth1","vlans":[{"vlan":1,"flags":["PVID","Egress Untagged"]},{"vlan":100,"vlanEnd":102}]},
{"ifname":"bertha1","vlans":[{"vlan":101,"flags":["PVID","Egress Untagged"]},{"vlan":7,"flags":["Egress Untagged"]}]}]"""


def test_vlans_of_ports_are_read_with_ranges_and_flags() -> None:
    assert read_tags(SHOWN) == {
        "eth1": {(1, True, True), (100, False, False), (101, False, False), (102, False, False)},
        "bertha1": {(101, True, True), (7, False, True)},
    }
    assert read_tags("") == {}


def test_names_of_access_ports_fit_the_kernel() -> None:
    assert len(access_name(VNI_MAX)) <= INTERFACE_NAME_MAX


def test_a_record_is_read_by_the_version_before_and_the_vlan_is_found_again(tmp_path: Path) -> None:
    order = in_vlan(A1, 101).order
    directory, record = defined(tmp_path, network=order)
    directory.path.mkdir()
    directory.save_order(record)
    assert "vlan" not in (directory.record_file.read_text())
    found = directory.load()
    assert found is not None
    assert directory.order_of(found) == order
    directory.save_order(record.model_copy(update={"network": A1.order}))
    assert directory.order_of(found) == A1.order, "a rebuild on a node that is connected otherwise"


@pytest.mark.parametrize("content", [b"", b"0", b"4095", b"x", b"[101]", b"\xff"])
def test_a_damaged_vlan_leaves_the_guest_its_network(tmp_path: Path, content: bytes) -> None:
    directory, record = defined(tmp_path, network=in_vlan(A1, 101).order)
    directory.path.mkdir()
    directory.save_order(record)
    directory.vlan.write_bytes(content)
    found = directory.load()
    assert found is not None
    assert directory.order_of(found) == A1.order


def test_an_order_without_a_vlan_is_that_of_the_version_before() -> None:
    assert "vlan" not in A1.order.model_dump(mode="json")
    assert in_vlan(A1, 101).order.model_dump(mode="json")["vlan"] == 101
