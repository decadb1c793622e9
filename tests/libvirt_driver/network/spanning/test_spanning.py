"""Networks that span nodes: guests of a tenant reach each other, and nothing else comes or goes. Each verdict has a control."""

from __future__ import annotations

from typing import Any

import pytest

from tests.libvirt_driver.network.spanning import forged as forged_frames
from tests.libvirt_driver.network.spanning.kernels import KINDS, VIRTUAL_SECONDS, played
from tests.libvirt_driver.network.spanning.reaching import DAMAGES_BY_KIND

# A minute of namespaces. tests/libvirt_driver/network/test_isolation.py has one node in `make test`.
pytestmark = [pytest.mark.full, pytest.mark.timeout(VIRTUAL_SECONDS + 300)]
FOLDER = "tests.libvirt_driver.network.spanning"
REACHED = {
    "a1 a2": "a2 10.66.1.11", "a2 a1": "a1 10.66.1.12", "b1 b2": "b2 10.66.2.11", "a1 a3": "a3 10.66.1.11", "a1 b2": "",
    "b2 a1": "",
}  # fmt: skip
"""What the server says, with the client's address."""


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, str], Any]:
    """What the runs have found, by module and kind of the uplink: each runs once."""
    return {}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """How the nodes are connected."""
    return str(request.param)


@pytest.fixture
def found(kind: str, runs: dict[tuple[str, str], Any]) -> Any:
    """What one run found."""
    return _found("reaching", kind, runs)


@pytest.fixture
def forged(kind: str, runs: dict[tuple[str, str], Any]) -> Any:
    """What one run found."""
    return _found("forged", kind, runs)


def _found(module: str, kind: str, runs: dict[tuple[str, str], Any]) -> Any:
    if (module, kind) not in runs:
        runs[module, kind] = played(f"{FOLDER}.{module}", kind)
    return runs[module, kind]


@pytest.mark.parametrize("setting", ["reached", "bridge netfilter"])
def test_guests_of_a_tenant_reach_each_other_on_other_nodes_and_no_other_tenant(found: Any, setting: str) -> None:
    assert found[setting] == REACHED


def test_a_guest_in_the_bridge_of_another_tenant_would_reach_its_guests(found: Any) -> None:
    assert found["no rules"] == REACHED, "the network is in each packet"
    assert found["same bridge, no rules"] == "b2 10.66.1.11"


def test_published_ports_lead_to_guests_of_networks_that_span_nodes(found: Any) -> None:
    assert found["published"] == ["a1 192.0.2.1", "a1 192.0.2.2", "a1 192.0.2.99"], "with the client's address"


def test_the_largest_packet_fits_and_a_larger_one_does_not(found: Any) -> None:
    assert found["sized"] == [True, False]


@pytest.mark.parametrize(
    ("kind", "damage"), [(kind, damage) for kind in KINDS for damage in DAMAGES_BY_KIND[kind]], indirect=["kind"]
)
def test_a_damaged_uplink_is_found_and_repaired(found: Any, damage: str) -> None:
    assert found["damages"][damage] == [True, True, True, False]


def test_a_node_is_reached_while_the_control_plane_names_it(found: Any) -> None:
    seen = found["come and go"]
    assert seen["again"] == [False, REACHED["a1 a2"]]
    assert seen["a2 is not named"] == {"a2": "", "a3": REACHED["a1 a3"]}
    assert seen["a2 may ask"] == "", "nor does it reach this one"
    assert seen["a2 is named"] == {"a2": REACHED["a1 a2"], "a3": REACHED["a1 a3"]}


def test_a_network_is_disconnected_with_its_last_guest_of_the_node(found: Any) -> None:
    removed, uplinks, other = found["come and go"]["a1 leaves"]
    assert removed[1:] == ["rules", "berthv1", "berthb1"]
    assert (uplinks, other) == (0, REACHED["b1 b2"])
    assert found["come and go"]["a1 returns"] == REACHED["a1 a2"]


def test_a_guest_that_comes_connects_the_networks_of_the_others_as_its_rules_say(found: Any) -> None:
    left, damaged, reached, repaired, again = found["come and go"]["a1 returns to fewer"]
    assert (left, damaged) == (0, False), "broadcasts of the other network go to no node that is not named"
    assert (reached, repaired, again) == (REACHED["a1 a2"], True, False), "one bridge that is gone keeps no guest out"


def test_networks_outlive_the_agent_and_are_repaired_without_the_control_plane(found: Any) -> None:
    seen = found["without agents"]
    assert seen["agent killed"] == REACHED["a1 a2"]
    assert seen["agent started"] == [REACHED["a1 a2"], ""]
    assert seen["file damaged"] == ["", ""]
    assert seen["control plane answered"] == REACHED["a1 a2"]


def test_a_dead_node_keeps_no_other_from_being_reached(found: Any) -> None:
    seen = found["without agents"]
    assert seen["node dead"] == {"a2": REACHED["a1 a2"], "a3": ""}
    assert seen["node back"] == REACHED["a1 a3"]


of_vxlan = pytest.mark.parametrize("kind", ["vxlan"], indirect=True)
"""Of packets that carry frames between nodes: VLANs have none (test_vlans.py has what can be sent into the trunk)."""
WRONG_SOURCES = (
    "a node of other networks",
    "a stranger",
    "its node's address on another interface",
    "its node to another address",
)


@of_vxlan
@pytest.mark.parametrize("source", WRONG_SOURCES)
def test_packets_of_what_is_no_node_of_the_network_are_dropped(forged: Any, source: str) -> None:
    assert forged["sources"]["its node"] is True
    assert forged["sources"]["its node's address on the interface of the underlay"] is True, "the packet is a right one"
    assert forged["sources"][source] is False
    assert forged["sources, no rules"][source] is True


@of_vxlan
def test_an_address_of_a_node_counts_on_its_interface_alone(forged: Any) -> None:
    assert forged["sources, any interface"]["its node's address on another interface"] is True
    assert forged["sources, any interface"]["a stranger"] is False


@pytest.mark.parametrize("frame", forged_frames.FRAMES)
def test_a_node_brings_in_frames_of_its_guests_alone(forged: Any, frame: str) -> None:
    assert forged["frames"][frame] is frame.startswith("honest")
    assert forged["frames, no rules"][frame] is True


def test_guests_of_other_nodes_do_not_reach_the_node_nor_it_them(kind: str, forged: Any) -> None:
    assert (forged["to the node"], forged["of the node"]) == (False, False)
    assert forged["of the node, no rules"] is True
    # By VLAN it is held back without these rules too: test_vlans.py has the control without either guard.
    assert forged["to the node, no rules"] is (kind == "vxlan")


@of_vxlan
def test_a_guest_sends_no_packets_into_networks_of_others(forged: Any) -> None:
    assert forged["by a guest"] is False
    assert forged["by a guest, networks closed"] is False
    assert forged["by a guest, port closed"] is False
    assert forged["by a guest, no rules"] is True, "its node's address is a peer's"
