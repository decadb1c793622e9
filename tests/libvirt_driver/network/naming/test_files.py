"""The arguments and files of a network's process: nothing that is named breaks out of its place."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node_agent.drivers.libvirt.network.dhcp import dhcp_hosts, hosts, options, reverse_zones, served
from node_agent.drivers.libvirt.network.policy import Naming
from node_agent.drivers.libvirt.network.rules import Guest, Remote
from node_agent.settings import Settings
from node_agent.wire.networks import LABEL, NetworkOrder, RemoteGuest
from tests.libvirt_driver.network.stage import A1, A2, B1

DIRECTORY = Path("/networks/1-7")


def with_names(guest: Guest, *names: str) -> Guest:
    """The guest with these names."""
    return replace(guest, order=guest.order.model_copy(update={"names": list(names)}))


def remote(host: int, *names: str, vni: int = 1) -> Remote:
    """A guest of another node."""
    return Remote(vni, f"52:54:0a:42:01:{host:02x}", IPv4Address(f"10.66.1.{host}"), IPv4Address("192.0.2.2"), names)


def test_a_network_names_its_guests_on_all_nodes_and_leases_to_its_own(tmp_path: Path) -> None:
    (network,) = served(
        [A2, with_names(A1, "berth-1", "web")], [remote(13, "berth-3", "db"), remote(14, "no", vni=2)]
    ).values()
    assert hosts(network, "x.test").splitlines() == [
        "10.66.1.11 berth-1.x.test berth-1 web.x.test web",
        f"10.66.1.12 {A2.names[0]}.x.test {A2.names[0]}",
        "10.66.1.13 berth-3.x.test berth-3 db.x.test db",
    ]
    assert dhcp_hosts(network).splitlines() == [
        "52:54:0a:42:01:0b,id:*,10.66.1.11,berth-1", f"52:54:0a:42:01:0c,id:*,10.66.1.12,{A2.names[0]}",
    ]  # fmt: skip


def test_a_name_is_the_one_of_the_guest_on_the_node() -> None:
    (network,) = served([with_names(A1, "berth-1", "web")], [remote(13, "berth-3", "web"), remote(14, "web")]).values()
    assert hosts(network, "x.test").splitlines() == [
        "10.66.1.11 berth-1.x.test berth-1 web.x.test web", "10.66.1.13 berth-3.x.test berth-3",
    ]  # fmt: skip


def test_each_network_has_its_own() -> None:
    networks = served([A1, B1], [remote(13, "three")])
    assert sorted(networks) == [1, 2]
    assert [len(networks[vni].remotes) for vni in (1, 2)] == [1, 0]


def test_arguments_are_those_of_one_network() -> None:
    (network,) = served([A1], []).values()
    found = options(network, DIRECTORY, Naming("x.test", (IPv4Address("192.0.2.53"),)), 1450)
    assert {
        "--interface=berthb1", "--except-interface=lo", "--bind-interfaces", "--conf-file=/dev/null", "--no-hosts", "--no-resolv",
        "--dhcp-ignore-names",
        "--dhcp-range=10.66.1.0,static,255.255.255.0,86400", "--dhcp-option=option:mtu,1450", "--local=/x.test/",
        "--local=/1.66.10.in-addr.arpa/", "--server=192.0.2.53", "--dhcp-hostsfile=/networks/1-7/dhcp-hosts",
    } <= set(found)  # fmt: skip
    assert not [one for one in options(network, DIRECTORY, Naming("x.test"), 1500) if one.startswith("--server")]


@pytest.mark.parametrize(
    ("subnet", "zones", "first"),
    [
        ("10.64.3.0/24", 1, "3.64.10"), ("10.64.3.128/25", 1, "3.64.10"), ("10.64.4.0/22", 4, "4.64.10"),
        ("10.64.0.0/16", 1, "64.10"), ("10.64.0.0/15", 2, "64.10"), ("10.64.3.8/29", 1, "3.64.10"),
    ],
)  # fmt: skip
def test_addresses_of_a_network_are_never_asked_for_elsewhere(subnet: str, zones: int, first: str) -> None:
    found = reverse_zones(IPv4Network(subnet))
    assert (len(found), found[0]) == (zones, f"{first}.in-addr.arpa")


INJECTED = (
    "", "a,10.0.0.1", "a\n10.0.0.1 b", "a b", "a\tb", "a.b", "A", "-a", "a-", "a_b", "a#b", "\u00fc", "a" * 64, "a\n", "*", "a/b",
    "a\x00",
)  # fmt: skip


@pytest.mark.parametrize("name", INJECTED)
def test_a_name_that_is_no_label_is_refused(name: str) -> None:
    order = A1.order.model_dump(mode="json")
    with pytest.raises(ValidationError, match="names"):
        NetworkOrder.model_validate({**order, "names": [name]})
    other: dict[str, Any] = {
        "address": "10.66.1.13",
        "mac": "52:54:0a:42:01:0d",
        "underlay": "192.0.2.2",
        "names": ["ok", name],
    }
    with pytest.raises(ValidationError, match="names"):
        RemoteGuest.model_validate(other)
    assert RemoteGuest.model_validate({**other, "names": ["ok"]}).names == ["ok"]


@given(st.lists(st.one_of(st.text(max_size=70), st.from_regex(LABEL)), max_size=2))
def test_files_have_a_line_for_each_guest_whatever_is_named(names: list[str]) -> None:
    try:
        order = NetworkOrder.model_validate({**A1.order.model_dump(mode="json"), "names": names})
    except ValidationError:
        return
    (network,) = served([Guest(UUID(int=1), order)], []).values()
    assert len(hosts(network, "x.test").splitlines()) == len(dhcp_hosts(network).splitlines()) == 1
    assert len(dhcp_hosts(network).split(",")) == 4


def test_an_order_without_names_is_as_before() -> None:
    assert "names" not in A1.order.model_dump(mode="json"), "an agent of the version before refuses it"
    assert A1.names == (f"berth-{A1.allocation_id}",)
    with pytest.raises(ValidationError, match="too_long"):
        NetworkOrder.model_validate({**A1.order.model_dump(mode="json"), "names": ["a", "b", "c"]})


@pytest.mark.parametrize("domain", ["", ".", "a..b", "a b", "a/b", "A.test", "a\n", "a,b", "#", "a.test.", "x" * 64])
def test_a_domain_that_is_none_is_refused(domain: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="libvirt_network_domain"):
        Settings.model_validate(
            {"api_url": "x", "root_keys_file": tmp_path, "agent_state_dir": tmp_path, "libvirt_network_domain": domain}
        )
