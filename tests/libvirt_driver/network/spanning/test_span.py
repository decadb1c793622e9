"""What an answer of the control plane may name of other nodes, and what is kept of it."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from uuid import UUID

import pytest

from node_agent.drivers.libvirt.network.links import bridge_mac
from node_agent.drivers.libvirt.network.policy import Uplink
from node_agent.drivers.libvirt.network.rules import Guest
from node_agent.drivers.libvirt.network.span import Span
from node_agent.wire.networks import RemoteGuest, SpannedNetwork
from tests.libvirt_driver.network.stage import A1, A2, B1

OWN = IPv4Address("192.0.2.1")
UPLINK = Uplink(OWN, (IPv4Network("192.0.2.0/24"),), 1450)
REMOTE = RemoteGuest(address=A2.order.address, mac=A2.order.mac, underlay=IPv4Address("192.0.2.2"))


def named(*guests: RemoteGuest, of: Guest = A1) -> list[SpannedNetwork]:
    """An answer about one network."""
    return [SpannedNetwork(network_id=of.order.network_id, vni=of.order.vni, guests=list(guests))]


def addresses(span: Span, *guests: Guest) -> list[str]:
    """The guests of other nodes that are connected with these."""
    return [str(one.address) for one in span.remotes(guests)]


@pytest.fixture
def span(tmp_path: Path) -> Span:
    return Span(UPLINK, tmp_path / "networks.json")


def test_an_answer_is_used_for_networks_that_have_guests_here(span: Span) -> None:
    assert span.note(named(REMOTE))
    assert not span.note(named(REMOTE)), "the same again"
    assert addresses(span, A1) == ["10.66.1.12"]
    assert addresses(span, B1) == addresses(span) == []


@pytest.mark.parametrize(
    "change",
    [
        {"underlay": OWN}, {"underlay": IPv4Address("198.51.100.2")}, {"address": A1.order.address}, {"mac": A1.order.mac},
        {"address": A1.order.gateway}, {"mac": bridge_mac(1)}, {"address": IPv4Address("10.66.2.12")},
        {"address": IPv4Address("10.66.1.0")}, {"address": IPv4Address("10.66.1.255")},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_guest_of_another_node_is_refused(span: Span, change: dict[str, object]) -> None:
    other = REMOTE.model_copy(update={"address": IPv4Address("10.66.1.13"), "mac": "52:54:0a:42:01:0d"})
    span.note(named(REMOTE.model_copy(update=change), other))
    assert addresses(span, A1) == ["10.66.1.13"]


def test_two_guests_do_not_have_one_address(span: Span) -> None:
    span.note(named(REMOTE, REMOTE.model_copy(update={"underlay": IPv4Address("192.0.2.3")})))
    assert [str(one.underlay) for one in span.remotes([A1])] == ["192.0.2.2"]


def test_a_vni_that_is_now_another_networks_connects_nothing(span: Span) -> None:
    span.note(named(REMOTE))
    other = replace(A1, order=A1.order.model_copy(update={"network_id": UUID(int=99)}))
    assert addresses(span, other) == []
    renumbered = replace(A1, order=A1.order.model_copy(update={"vni": 9}))
    assert addresses(span, renumbered) == []


def test_the_last_answer_is_kept(tmp_path: Path, span: Span) -> None:
    span.note(named(REMOTE))
    span.keep()
    assert addresses(Span(UPLINK, tmp_path / "networks.json"), A1) == ["10.66.1.12"]
    span.note([])
    span.keep()
    assert addresses(Span(UPLINK, tmp_path / "networks.json"), A1) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'[{"vni": 1}]', b"\xff"])
def test_a_damaged_file_is_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "networks.json").write_bytes(content)
    span = Span(UPLINK, tmp_path / "networks.json")
    assert addresses(span, A1) == []
    span.note(named(REMOTE))
    span.keep()
    assert addresses(Span(UPLINK, tmp_path / "networks.json"), A1) == ["10.66.1.12"]


def test_a_full_disk_keeps_no_network_from_being_repaired(tmp_path: Path) -> None:
    span = Span(UPLINK, tmp_path / "absent" / "networks.json")
    span.note(named(REMOTE))
    span.keep()
    assert addresses(span, A1) == ["10.66.1.12"]
