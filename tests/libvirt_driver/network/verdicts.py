"""What passes and what does not, with the rules, without them, and with other settings: printed as JSON."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

from node_agent.drivers.libvirt.network.names import BRIDGE_PREFIX
from node_agent.drivers.libvirt.network.networks import TenantNetworks
from node_agent.drivers.libvirt.network.policy import Naming
from node_agent.drivers.libvirt.network.programs import apply_rules
from node_agent.drivers.libvirt.network.rules import Guest, replacement
from tests.libvirt_driver.network.frames import arrived
from tests.libvirt_driver.network.stage import (
    A1,
    A2,
    B1,
    INTERNET,
    MANAGED,
    MANAGEMENT,
    METADATA,
    SERVICE,
    UPLINK,
    bridge_netfilter,
    node_with,
    policy,
    reached,
    sh,
)

SAME_TENANT, OTHER_TENANT = "guest to guest, same tenant", "guest to guest, other tenant"
PUBLISHED = "internet to a published port"
HAIRPIN, UNPUBLISHED = "guest to another tenant's published port", "internet to a port that is not published"
# Where the client is, address and port that it connects to.
CONNECTIONS: dict[str, tuple[str | None, str, int]] = {
    SAME_TENANT: ("a1", str(A2.order.address), 22),
    OTHER_TENANT: ("a1", str(B1.order.address), 22),
    "guest to guest, other tenant, other way": ("b1", str(A2.order.address), 22),
    "guest to its own address": ("a1", str(A1.order.address), 22),
    "guest to the node at its gateway": ("a1", str(A1.order.gateway), SERVICE),
    "guest to the node at another gateway": ("a1", str(B1.order.gateway), SERVICE),
    "guest to the node at its uplink": ("a1", UPLINK, SERVICE),
    "guest to the node at its management address": ("a1", MANAGED, SERVICE),
    "guest to a management host": ("a1", MANAGEMENT, SERVICE),
    "guest to the metadata address": ("a1", METADATA, SERVICE),
    "guest to the internet": ("a1", INTERNET, SERVICE),
    HAIRPIN: ("a1", UPLINK, 30_003),
    PUBLISHED: ("internet", UPLINK, 30_001),
    "internet to another published port": ("internet", UPLINK, 30_003),
    UNPUBLISHED: ("internet", UPLINK, 30_009),
    "internet to a guest's address by a route": ("internet", str(A1.order.address), 22),
    "node to a published port": (None, UPLINK, 30_001),
    "internet to the node": ("internet", UPLINK, SERVICE),
}

LINES = {
    "hairpin": f'iifname "{BRIDGE_PREFIX}*" accept',
    "network": 'counter drop comment "other network"',
    "closed": 'ip daddr @closed counter drop comment "closed"',
    "outbound": 'counter drop comment "outbound"',
    "node": 'counter drop comment "node"',
    "guest": 'counter drop comment "not published"',
    "bridges": 'iifname . oifname @bridges accept comment "br_netfilter: within a network"',
}
"""Lines of the rules, by a part of each; every one keeps something out."""
BETWEEN_NETWORKS = ("hairpin", "network", "closed", "outbound")
"""Each keeps a guest from another tenant's published port."""

FEW = (SAME_TENANT, OTHER_TENANT, PUBLISHED)


def seen(*names: str) -> dict[str, str]:
    """What is said at these connections, or at each."""
    chosen = names or tuple(CONNECTIONS)
    with ThreadPoolExecutor(len(CONNECTIONS)) as pool:
        return dict(zip(chosen, pool.map(lambda it: reached(*CONNECTIONS[it]), chosen), strict=True))


def without(guests: list[Guest], *names: str) -> None:
    """The rules, without these lines."""
    lines = replacement(policy(), guests).splitlines()
    apply_rules("\n".join(line for line in lines if not any(LINES[name] in line for name in names)))


def controls(guests: list[Guest]) -> dict[str, str]:
    """What is said with some lines of the rules left out."""
    found = {}
    for kept in (None, *BETWEEN_NETWORKS):
        without(guests, *(name for name in BETWEEN_NETWORKS if name != kept))
        found[f"hairpin, {kept}"] = seen(HAIRPIN)[HAIRPIN]
    for name, connection in {
        "node": "guest to the node at its gateway",
        "guest": "internet to a guest's address by a route",
    }.items():
        without(guests, name)
        found[name] = seen(connection)[connection]
    bridge_netfilter(True)
    without(guests, "bridges")
    found["bridges"] = seen(SAME_TENANT)[SAME_TENANT]
    bridge_netfilter(False)
    apply_rules(replacement(policy(), guests))
    sh(f"nft add element inet berth published '{{ {UPLINK} . 30009 : {A1.order.address} . 22 }}'")
    found["published"] = seen(UNPUBLISHED)[UNPUBLISHED]
    return found


async def main() -> None:
    """Print what passes in each setting."""
    guests = [A1, A2, B1]
    stage = node_with([("a1", A1), ("a2", A2), ("b1", B1)])
    networks = TenantNetworks(policy(), lambda: guests)
    found: dict[str, object] = {}
    try:
        await networks.start()
        found["rules"], found["frames, rules"] = seen(), arrived()
        bridge_netfilter(True)
        found["bridge netfilter"] = seen()
        bridge_netfilter(False)
        found["controls"] = controls(guests)
        sh("nft delete table inet berth; nft delete table bridge berth")
        found["no rules"], found["frames, no rules"] = seen(), arrived()
        # What the forged frames made A2 believe.
        sh("ip neigh flush all", "a2")
        found["restored"] = await networks.tend()
        found["after"] = seen(*FEW)
        networks.close()
        open_networks = TenantNetworks(policy(egress=True), lambda: guests)
        await open_networks.start()
        found["egress"] = seen()
        open_networks.close()
        # The rules alone: nothing answers at the ports that they open.
        naming = TenantNetworks(policy(naming=Naming("berth.internal")), lambda: guests)
        await naming.start()
        found["names"], found["frames, names"] = seen(), arrived()
        naming.close()
        await open_networks.start()
        # One guest leaves: the others keep what they have.
        await open_networks.take_out(A2.allocation_id)
        guests.remove(A2)
        found["without a2"] = seen(*FEW)
    finally:
        stage.end()
    print(json.dumps(found))  # noqa: T201 - the result


if __name__ == "__main__":
    asyncio.run(main())
