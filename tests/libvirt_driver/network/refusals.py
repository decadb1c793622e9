"""Guests that have no network, by their records or by the host's own networks: printed as JSON."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any
from uuid import UUID

from node_agent.drivers.libvirt.network import networks as networks_module
from node_agent.drivers.libvirt.network.links import links
from node_agent.drivers.libvirt.network.networks import TenantNetworks
from node_agent.drivers.libvirt.network.rules import Guest
from tests.libvirt_driver.network.stage import A1, A2, B1, guest, policy, sh

# Of other networks than A1's: with its VNI, and with a subnet that has its own.
SAME_VNI = replace(B1, order=B1.order.model_copy(update={"vni": A1.order.vni}))
OVERLAPPING = replace(B1, order=B1.order.model_copy(update={"subnet": IPv4Network("10.66.0.0/16")}))

# Of A1's network: with its address, and with another subnet.
SAME_ADDRESS = replace(A2, order=A2.order.model_copy(update={"address": A1.order.address}))
OTHER_SUBNET = replace(A2, order=A2.order.model_copy(update={"subnet": IPv4Network("10.66.0.0/16")}))


async def brought_in(networks: TenantNetworks, one: Guest) -> str:
    """The problem of a guest that is brought in; empty if it has its network."""
    try:
        await networks.bring_in(one)
    except OSError as refused:
        return str(refused)
    return ""


async def beside(other: Guest) -> list[Any]:
    """A1 and a guest of another network: the problem of the second, and what a start makes of both records, in either order."""
    guests = [A1]
    networks = TenantNetworks(policy(), lambda: guests)
    await networks.start()
    said = await brought_in(networks, other)
    found: list[Any] = [said, other.tap in links(), other.tap in sh("nft list table bridge berth")]
    guests[:] = [other, A1]
    try:
        restored: bool | str = await networks.tend()
    except OSError as refused:
        restored = str(refused)
    # A1 has its tap, so it keeps it, though its record comes later.
    found += [restored, sorted(set(links()) & {A1.tap, other.tap}) == [A1.tap]]
    networks.close()
    await _emptied()
    return found


async def _emptied() -> None:
    last = TenantNetworks(policy(), list)
    await last.start()
    last.close()
    assert links() == {}


async def stages() -> dict[str, Any]:
    """What is made of guests that come and go."""
    guests = [A1, replace(A2, stage="coming")]
    networks = TenantNetworks(policy(), lambda: guests)
    await networks.start()
    found: dict[str, Any] = {"coming": A2.tap in links()}
    await networks.bring_in(guests[1])
    found["brought in"] = [A2.tap in links(), await networks.tend(), A2.tap in links()]
    sh(f"ip link delete {A2.tap}")
    found["coming, repaired"] = [await networks.tend(), A2.tap in links()]
    guests[:] = [replace(A2, stage="leaving")]
    await networks.tend()
    found["leaving"] = A2.tap in links()
    await networks.take_out(A2.allocation_id)
    sh("nft flush ruleset")
    found["left"] = [await networks.tend(), sorted(links()), str(A2.order.address) in sh("nft list ruleset")]
    networks.close()
    await _emptied()
    return found


async def one_fails() -> list[bool]:
    """A start and a repair go on past a guest whose interface cannot be made."""
    foreign = guest(4, 4, 11)
    sh(f"ip tuntap add dev {foreign.tap} mode tap; ip link set {foreign.tap} alias {A2.allocation_id}")
    networks = TenantNetworks(policy(), lambda: [foreign, A1, B1])
    await networks.start()
    made = set(links())
    sh(f"ip link delete {B1.tap}")
    await networks.tend()
    networks.close()
    found = [{A1.tap, B1.tap} <= made, B1.tap in links()]
    await _emptied()
    return found


async def of_the_node() -> dict[str, str]:
    """The problem of a guest whose subnet has networks of the node."""
    found: dict[str, str] = {}
    for name, made, undone in (
        ("address", "ip addr add 10.66.1.200/32 dev lo", "ip addr del 10.66.1.200/32 dev lo"),
        ("network", "ip addr add 10.66.0.5/16 dev up0", "ip addr del 10.66.0.5/16 dev up0"),
        ("route", "ip route add 10.66.1.64/26 via 198.51.100.2", "ip route del 10.66.1.64/26"),
        ("default route", "ip route add default via 198.51.100.2", "ip route del default"),
    ):
        sh(made)
        networks = TenantNetworks(policy(), list)
        await networks.start()
        found[name] = await brought_in(networks, A1)
        networks.close()
        await _emptied()
        sh(undone)
    return found


async def unreadable() -> list[str]:
    """A guest whose record cannot be read is taken out: which addresses are forgotten."""
    module: Any = networks_module
    forgotten: list[str] = []
    real = module.forget_connections

    def forget(address: str) -> None:
        forgotten.append(address)
        real(address)

    module.forget_connections = forget
    guests = [A1, A2]
    networks = TenantNetworks(policy(), lambda: guests)
    await networks.start()
    guests.remove(A2)
    await networks.take_out(A2.allocation_id)
    await networks.take_out(UUID(int=77))
    networks.close()
    await _emptied()
    return forgotten


async def main() -> None:
    """Print everything."""
    sh("ip link add up0 type bridge; ip addr add 198.51.100.1/24 dev up0; ip link set up0 up")
    found: dict[str, Any] = {
        "same vni": await beside(SAME_VNI),
        "overlapping": await beside(OVERLAPPING),
        "same address": await beside(SAME_ADDRESS),
        "other subnet": await beside(OTHER_SUBNET),
        "stages": await stages(),
        "one fails": await one_fails(),
        "of the node": await of_the_node(),
        "unreadable": await unreadable(),
    }
    print(json.dumps(found))  # noqa: T201 - the result


if __name__ == "__main__":
    asyncio.run(main())
