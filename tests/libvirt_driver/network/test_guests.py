"""Real guests of two tenants on one node: what each reaches, and one that uses another address than its own."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.contract import Driver, ProvisionOrder, ReleaseOrder, Verb, VerbOrder
from node_agent.drivers.performing import Unheard, perform
from node_agent.protocol import Connection, ProvisionParameters, ReleaseParameters
from node_agent.settings import Settings
from node_agent.wire.networks import NetworkOrder
from tests.drivers.bridged_harness import HOST, BridgedHarness, network_of, own_host
from tests.drivers.in_process import Node, play
from tests.drivers.libvirt_harness import usable
from tests.libvirt_driver.listening import listening
from tests.libvirt_driver.network.stage import why_no_name_servers

pytestmark = [pytest.mark.hardware, pytest.mark.timeout(600)]

STRANGE = IPv4Address("10.67.7.99")


class Patient(BridgedHarness):
    """Guests that boot at once, by emulation, on a loaded machine."""

    def driver(self, settings: Settings) -> Driver:
        driver = super().driver(settings)
        node: Any = driver._node  # type: ignore[attr-defined]
        node.limits = replace(node.limits, readiness_seconds=240.0)
        return driver


@pytest.fixture
def harness() -> Iterator[BridgedHarness]:
    made = usable(Patient())
    with own_host():
        yield made


def order(node: Node, slot: int, vni: int, *names: str, **changes: Any) -> ProvisionOrder:
    """A guest of a tenant's network."""
    network = network_of(slot, vni) | ({"names": [f"berth-{slot}", *names]} if names else {})
    parameters = node.tenant.provision([slot], network=network, **changes)
    return ProvisionOrder(uuid.uuid4(), 7, ProvisionParameters.model_validate(parameters))


def dropped(comment: str) -> int:
    """How many frames a rule has dropped."""
    rules = subprocess.run(
        ["nft", "list", "table", "bridge", "berth"], capture_output=True, text=True, check=True
    ).stdout
    (rule,) = [line for line in rules.splitlines() if line.endswith(f'comment "{comment}"')]
    return int(rule.split("packets ")[1].split()[0])


async def reached(node: Node, guest: Connection, targets: list[tuple[str, int]]) -> list[bool]:
    """To which addresses and ports a program in the guest gets a connection."""
    tries = " ".join(
        f"(nc -w 8 {address} {port} </dev/null >/dev/null 2>&1 && echo {number} reached) &"
        for number, (address, port) in enumerate(targets)
    )
    said = await node.tenant.run(guest, f"{tries} wait")  # type: ignore[attr-defined]
    return [f"{number} reached" in said for number in range(len(targets))]


def test_guests_reach_their_tenants_guests_and_nothing_else(harness: BridgedHarness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        orders = [order(node, slot, vni) for slot, vni in ((0, 7), (1, 7), (2, 8))]
        ups = await asyncio.gather(*(perform(node.driver.provision(one), Unheard()) for one in orders))
        a1, a2, b1 = (up.connection for up in ups)
        assert [up.host for up in (a1, a2, b1)] == [HOST] * 3
        with listening() as port:
            # Same tenant, other tenant, the node at the gateway and at its address; and the other way.
            targets = [("10.67.7.11", 22), ("10.67.8.12", 22), ("10.67.7.1", port), (HOST, port)]
            assert await reached(node, a1, targets) == [True, False, False, False]
            assert await reached(node, b1, targets) == [False, True, False, False]
            assert "dport=31700" in tracked()
            # The control: without the rules, and with ports published as before, each is reached.
            for chain in ("from_guest", "to_guest", "to_node"):
                subprocess.run(["nft", "flush", "chain", "inet", "berth", chain], check=True)
            for guest in (a1, b1):
                assert await reached(node, guest, targets) == [True] * 4
        await node.driver.tend_leases()
        assert await reached(node, b1, targets) == [False, True, False, False], "the rules were restored"
        proof = await perform(node.driver.release(release(orders[0])), Unheard())
        assert proof.released
        assert len(proof.evidence["network"]["removed"]) == 2, "the tap and its rules; the bridge has another guest"
        assert "10.67.7.10 " not in tracked()

    play(harness, tmp_path, scenario)


def tracked() -> str:
    """The connections that the node tracks."""
    return subprocess.run(["conntrack", "-L"], capture_output=True, text=True, check=True).stdout


def release(of: ProvisionOrder) -> ReleaseOrder:
    """The release of a guest."""
    return ReleaseOrder(of.allocation_id, 8, ReleaseParameters(slots=of.parameters.slots, graceful_seconds=2.0))


def test_a_guest_with_a_foreign_address_reaches_no_other(
    harness: BridgedHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from node_agent.drivers.libvirt import seed

    honest: Any = seed._network_config

    def forged(network: NetworkOrder, mtu: int | None, domain: str | None) -> str:
        return str(honest(network.model_copy(update={"address": STRANGE}), mtu, domain))

    monkeypatch.setattr(seed, "_network_config", forged)

    async def scenario(node: Node) -> None:
        plan = node.driver.provision(order(node, 0, 7))
        for phase in plan.phases:
            if phase.name == "ssh_ready":
                break
            await phase.run(lambda _share, _detail: None)
        with pytest.raises(OSError):  # noqa: PT011 - refused, or no answer
            await asyncio.wait_for(asyncio.open_connection(str(STRANGE), 22), 4)
        assert dropped("arp") > 0
        subprocess.run(["nft", "flush", "ruleset"], check=True)
        _, writer = await asyncio.wait_for(asyncio.open_connection(str(STRANGE), 22), 20)
        writer.close()

    play(harness, tmp_path, scenario)


class Spanning(Patient):
    """Networks that span nodes."""

    def driver(self, settings: Settings) -> Driver:
        spanning = {
            "libvirt_network_uplink": "vxlan", "libvirt_network_underlay": IPv4Address(HOST), "libvirt_network_mtu": 1400,
            "libvirt_network_peers": [IPv4Network(f"{HOST}/32")],
        }  # fmt: skip
        return super().driver(settings.model_copy(update=spanning))


def test_a_guest_in_a_network_that_spans_nodes_has_its_mtu(tmp_path: Path) -> None:
    harness = usable(Spanning())

    async def scenario(node: Node) -> None:
        ordered = order(node, 0, 7)
        up = await perform(node.driver.provision(ordered), Unheard())
        assert await node.tenant.run(up.connection, "cat /sys/class/net/eth0/mtu") == "1400\n"  # type: ignore[attr-defined]
        proof = await perform(node.driver.release(release(ordered)), Unheard())
        assert proof.evidence["network"]["removed"][1:] == ["rules", "name server", "berthv7", "berthb7"]

    with own_host():
        play(harness, tmp_path, scenario)


def test_guests_by_seed_and_by_dhcp_resolve_each_other_also_after_a_rebuild(tmp_path: Path) -> None:
    if (reason := why_no_name_servers()) is not None:
        pytest.skip(reason)
    harness = usable(Spanning())

    async def scenario(node: Node) -> None:
        orders = [
            order(node, 0, 7, "web"), order(node, 1, 7, "db", user_data="#!/bin/sh\n# network: dhcp\n"), order(node, 2, 8, "web"),
        ]  # fmt: skip
        seeded, asking, stranger = await asyncio.gather(
            *(perform(node.driver.provision(one), Unheard()) for one in orders)
        )
        run: Any = node.tenant.run  # type: ignore[attr-defined]
        shown = "ip -4 -o addr show eth0; ip route; cat /sys/class/net/eth0/mtu; cat /etc/resolv.conf"
        for up, host in ((seeded, 10), (asking, 11)):
            said = await run(up.connection, shown)
            assert f"inet 10.67.7.{host}/24" in said
            assert "default via 10.67.7.1" in said
            assert "\n1400\nsearch berth.internal\nnameserver 10.67.7.1\n" in said
        assert "10.67.7.11" in await run(seeded.connection, "nslookup db.berth.internal")
        assert "10.67.7.10" in await run(
            asking.connection, "nslookup web.berth.internal; nslookup berth-0.berth.internal"
        )
        assert "10.67.8.12" in await run(stranger.connection, "nslookup web.berth.internal")
        assert "NXDOMAIN" in await run(stranger.connection, "nslookup db.berth.internal 2>&1 || true")
        rebuild = VerbOrder(orders[1].allocation_id, 8, Verb.REBUILD, orders[1].parameters, 2.0)
        rebuilt = await perform(node.driver.verb(rebuild), Unheard())
        assert "inet 10.67.7.11/24" in await run(rebuilt.connection, shown)
        assert "10.67.7.11" in await run(seeded.connection, "nslookup db.berth.internal")

    with own_host():
        play(harness, tmp_path, scenario)
