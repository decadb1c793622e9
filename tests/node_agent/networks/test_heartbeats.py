"""An agent states its underlay address with each heartbeat, and connects its networks as soon as an answer changes them."""

from __future__ import annotations

import sys
import uuid
from ipaddress import IPv4Address

import pytest

from node_agent.wire.networks import TENANT_NETWORK_FEATURE, VXLAN_FEATURE, SpanAnswer, SpannedNetwork
from tests.node_agent.agents import AgentProcess, Tenant
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane

SPANNING = {
    "BERTH_AGENT_DRIVER": "libvirt", "BERTH_LIBVIRT_NETWORK": "bridge", "BERTH_LIBVIRT_NETWORK_UPLINK": "vxlan",
    "BERTH_LIBVIRT_NETWORK_UNDERLAY": "192.0.2.7", "BERTH_LIBVIRT_NETWORK_PEERS": '["192.0.2.0/24"]',
    "BERTH_AGENT_LEASE_SECONDS": "36000", "BERTH_AGENT_HEARTBEAT_SECONDS": "0.05",
}  # fmt: skip


@pytest.fixture(autouse=True)
def noting_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of this module write down what their driver learns."""
    monkeypatch.setattr(AgentProcess, "command", (sys.executable, "-m", "tests.node_agent.networks.noting_agent"))


def spanned(vni: int) -> list[SpannedNetwork]:
    """A network without guests on other nodes."""
    return [SpannedNetwork(network_id=uuid.uuid4(), vni=vni, guests=[])]


@pytest.mark.full
def test_networks_are_connected_when_an_answer_changes_them_and_not_when_none_does(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        def notes() -> list[str]:
            return (agent.state_dir / "notes").read_text().splitlines()

        beat = plane.heartbeats[-1]
        assert beat.span is not None
        assert (beat.span.underlay, beat.span.etag) == (IPv4Address("192.0.2.7"), None)
        assert {TENANT_NETWORK_FEATURE, VXLAN_FEATURE} <= set(beat.features)
        plane.span = SpanAnswer(etag="aa", networks=spanned(5))
        await plane.until(lambda: notes()[-1] == "[5]")
        plane.span, seen = SpanAnswer(etag="bb", networks=None), len(plane.heartbeats)
        await plane.until(lambda: len(plane.heartbeats) > seen + 40)
        etags = [beat.span and beat.span.etag for beat in plane.heartbeats[seen + 1 :]]
        assert set(etags) == {"aa", None}, "what it has is that of the last answer with networks"
        assert etags.count(None) in (1, 2), "all are asked for now and then"
        plane.span = SpanAnswer(etag="cc", networks=spanned(6))
        await plane.until(lambda: notes()[-1] == "[6]")
        assert [note for note in notes() if note != "[]"] == ["[5]", "[6]"], "not at each heartbeat"

    play(scenario, **SPANNING)


def test_an_agent_whose_networks_end_at_the_node_states_no_address(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        assert plane.heartbeats[-1].span is None
        assert VXLAN_FEATURE not in plane.heartbeats[-1].features

    play(scenario, **{**SPANNING, "BERTH_LIBVIRT_NETWORK_UPLINK": "none"})
