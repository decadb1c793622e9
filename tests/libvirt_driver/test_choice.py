"""What the agent says when the driver libvirt cannot be used."""

from __future__ import annotations

import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.choice import choose_driver
from node_agent.drivers.libvirt.network.policy import Naming
from node_agent.problems import CannotStart
from node_agent.wire.networks import NAMES_FEATURE, VLAN_FEATURE, VXLAN_FEATURE
from tests.libvirt_driver.choosing import settings


def test_a_directory_for_guests_is_demanded(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="BERTH_GUEST_DIR"):
        choose_driver(settings(tmp_path))


@pytest.mark.hardware
def test_the_address_of_guests_must_be_one_of_the_node(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="BERTH_AGENT_ADVERTISED_HOST"):
        choose_driver(settings(tmp_path, guest_dir=tmp_path / "guests", agent_advertised_host="node.example"))
    assert not (tmp_path / "guests").exists()


SPANNING = {
    "libvirt_network": "bridge", "libvirt_network_uplink": "vxlan", "libvirt_network_underlay": "192.0.2.7",
    "libvirt_network_peers": ["192.0.2.0/24"], "agent_advertised_host": "192.0.2.7",
}  # fmt: skip


# It needs the packages of the driver.
@pytest.mark.hardware
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"libvirt_network": "user"}, "needs BERTH_LIBVIRT_NETWORK=bridge"),
        ({"libvirt_network_underlay": None}, "needs BERTH_LIBVIRT_NETWORK_UNDERLAY and"),
        ({"libvirt_network_peers": []}, "and BERTH_LIBVIRT_NETWORK_PEERS"),
        ({"libvirt_network_peers": ["198.51.100.0/24"]}, "192.0.2.7 is in none of BERTH_LIBVIRT_NETWORK_PEERS"),
    ],
)
def test_an_uplink_that_is_stated_by_half_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    pytest.importorskip("libvirt", reason="the packages of requirements-libvirt.lock are not installed")
    with pytest.raises(CannotStart, match=words):
        choose_driver(settings(tmp_path, guest_dir=tmp_path / "guests", **{**SPANNING, **change}))
    assert not (tmp_path / "guests").exists()
    choose_driver(settings(tmp_path, guest_dir=tmp_path / "guests", **SPANNING))


BY_VLAN = {
    "libvirt_network": "bridge", "libvirt_network_uplink": "vlan", "libvirt_network_uplink_interface": "eth1",
    "agent_advertised_host": "192.0.2.7",
}  # fmt: skip


# It needs the packages of the driver.
@pytest.mark.hardware
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"libvirt_network": "user"}, "needs BERTH_LIBVIRT_NETWORK=bridge"),
        ({"libvirt_network_uplink_interface": None}, "needs BERTH_LIBVIRT_NETWORK_UPLINK_INTERFACE"),
        (
            {"agent_advertised_host": "169.254.0.7"},
            "an address of one host as BERTH_AGENT_ADVERTISED_HOST, not 169.254.0.7",
        ),
    ],
)
def test_a_trunk_that_is_stated_by_half_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    pytest.importorskip("libvirt", reason="the packages of requirements-libvirt.lock are not installed")
    with pytest.raises(CannotStart, match=words):
        choose_driver(settings(tmp_path, guest_dir=tmp_path / "guests", **{**BY_VLAN, **change}))
    choose_driver(settings(tmp_path, guest_dir=tmp_path / "guests", **BY_VLAN))


@pytest.mark.parametrize("interface", ["", "eth1 up", "-eth1", "a" * 16, "eth1/..", 'eth1"'])
def test_a_trunk_that_is_no_name_of_an_interface_is_refused(tmp_path: Path, interface: str) -> None:
    with pytest.raises(ValueError, match="libvirt_network_uplink_interface"):
        settings(tmp_path, **{**BY_VLAN, "libvirt_network_uplink_interface": interface})


def test_an_agent_states_its_uplink_and_what_distinguishes_it_from_others(tmp_path: Path) -> None:
    by_vlan, by_vxlan = settings(tmp_path, **BY_VLAN), settings(tmp_path, **SPANNING)
    assert set(by_vlan.features()) ^ set(by_vxlan.features()) == {VLAN_FEATURE, VXLAN_FEATURE}
    assert VLAN_FEATURE in by_vlan.features()
    assert (by_vlan.underlay(), by_vxlan.underlay()) == (IPv4Address("192.0.2.7"), IPv4Address("192.0.2.7"))
    ends = settings(tmp_path, **{**BY_VLAN, "libvirt_network_uplink": "none"})
    assert ends.underlay() is None


@pytest.mark.parametrize("underlay", ["127.0.0.1", "0.0.0.0", "224.0.0.9", "node.example"])
def test_an_underlay_address_that_other_nodes_cannot_reach_is_refused(tmp_path: Path, underlay: str) -> None:
    with pytest.raises(ValueError, match="libvirt_network_underlay"):
        settings(tmp_path, **{**SPANNING, "libvirt_network_underlay": underlay})


@pytest.mark.parametrize(
    ("change", "is_named"),
    [({}, True), ({"libvirt_network_names": "none"}, False), ({"libvirt_network": "user"}, False)],
)
def test_an_agent_says_whether_it_serves_names(tmp_path: Path, change: dict[str, str], is_named: bool) -> None:
    networked = {"agent_driver": "libvirt", "libvirt_network": "bridge", **change}
    assert (NAMES_FEATURE in settings(tmp_path, **networked).features()) is is_named


@pytest.mark.hardware
def test_names_are_served_by_the_settings(tmp_path: Path) -> None:
    pytest.importorskip("libvirt", reason="the packages of requirements-libvirt.lock are not installed")
    named = {**SPANNING, "libvirt_network_domain": "x.test", "libvirt_network_resolvers": ["127.0.0.53"]}
    driver: Any = choose_driver(settings(tmp_path, guest_dir=tmp_path / "guests", **named))
    node = driver._node
    assert node.network_domain == "x.test"
    assert node.networks._policy.naming == Naming("x.test", (IPv4Address("127.0.0.53"),))
    assert node.networks._policy.mtu == 1450
    off = choose_driver(settings(tmp_path, guest_dir=tmp_path / "guests", **named, libvirt_network_names="none"))
    assert off._node.network_domain is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("resolvers", [["192.0.2.1"] * 4, ["resolver.test"], ["192.0.2.1#53"], ["fd00::1"]])
def test_resolvers_are_three_addresses_at_most(tmp_path: Path, resolvers: list[str]) -> None:
    with pytest.raises(ValueError, match="libvirt_network_resolvers"):
        settings(tmp_path, libvirt_network_resolvers=resolvers)


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = [name for name in sys.modules if name.startswith("node_agent.drivers.libvirt.")]
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "libvirt", None)
    monkeypatch.setitem(sys.modules, "pycdlib", None)
    with pytest.raises(CannotStart, match=r"requirements-libvirt\.lock"):
        choose_driver(settings(tmp_path, guest_dir=tmp_path / "guests"))
    assert not (tmp_path / "guests").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"guest_memory_bytes": 1},
        {"guest_disk_bytes": (1 << 30) + 1},
        {"guest_processors": 0},
        {"guest_user_id_first": 0},
    ],
)
def test_a_guest_that_cannot_be_is_refused_at_the_start(tmp_path: Path, change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        settings(tmp_path, guest_dir=tmp_path, **change)
