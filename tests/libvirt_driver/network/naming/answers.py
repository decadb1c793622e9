"""What guests of two tenants on one node are answered by DHCP and DNS, while servers and agents come and go. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from node_agent.drivers.libvirt.network.dhcp import NameServers, served
from node_agent.drivers.libvirt.network.networks import TenantNetworks
from node_agent.drivers.libvirt.network.policy import Naming, Policy
from node_agent.drivers.libvirt.network.programs import apply_rules
from node_agent.drivers.libvirt.network.rules import Guest, replacement
from tests.libvirt_driver.network.naming.asking import asked, flooded, leased, resolved, upstream
from tests.libvirt_driver.network.stage import (
    A1,
    A2,
    B1,
    INTERNET,
    SERVICE,
    UPLINK,
    Stage,
    bridge_netfilter,
    node_with,
    policy,
    reached,
    sh,
)

DOMAIN = "berth.internal"


def named(guest: Guest, name: str) -> Guest:
    """The guest with a leased name besides its host name."""
    return replace(guest, order=guest.order.model_copy(update={"names": [*guest.names, name]}))


WEB, DB, OTHER_WEB = named(A1, "web"), named(A2, "db"), named(B1, "web")
QUERIES = 2000
GATEWAY, OTHER_GATEWAY = str(A1.order.gateway), str(B1.order.gateway)


class Node:
    """The networks of the node, with an agent that can be replaced by the next one."""

    def __init__(self, directory: Path, policy: Policy, guests: list[Guest]) -> None:
        self.directory, self.policy, self.guests = directory, policy, guests
        self.networks = self._made()

    def _made(self) -> TenantNetworks:
        names = NameServers(self.directory, self.policy.naming, self.policy.mtu)
        return TenantNetworks(self.policy, lambda: self.guests, None, names)

    async def start(self, changed: Policy | None = None) -> None:
        """Start the next agent, which remembers nothing of the last."""
        self.networks.close()
        self.policy = changed or self.policy
        self.networks = self._made()
        await self.networks.start()

    def pids(self) -> list[int]:
        """The processes that serve names, by this directory."""
        return sorted(pid for found in NameServers(self.directory, None, 0)._processes().values() for pid in found)


def names_seen(namespace: str, gateway: str) -> dict[str, Any]:
    """What a guest is answered about each name."""
    asked_for = (
        "web",
        f"web.{DOMAIN}",
        f"WEB.{DOMAIN}",
        "db",
        A2.names[0],
        f"{B1.names[0]}.{DOMAIN}",
        "www.example.org",
    )
    return {name: resolved(namespace, name, gateway) for name in asked_for}


def identity(pid: int) -> dict[str, Any]:
    """The user of a process and what it may do."""
    lines = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return {
        "user": sh(f"stat -c %U /proc/{pid}").strip(), "capabilities": int(lines["CapEff"], 16),
        "ambient": int(lines["CapAmb"], 16), "no new privileges": lines["NoNewPrivs"],
    }  # fmt: skip


def answered_otherwise() -> bool:
    """Whether a guest is not answered the truth any more; a signal takes a while."""
    return any(resolved("a2", "web", GATEWAY).get("answers") != ["10.66.1.11"] for _ in range(100))


def dropped(comment: str) -> int:
    """How many packets a rule has dropped."""
    (rule,) = [
        line for line in sh("nft list table inet berth").splitlines() if line.strip().endswith(f'comment "{comment}"')
    ]
    return int(rule.split("packets ")[-1].split()[0])


def closed() -> dict[str, Any]:
    """What a guest gets of other services of the node: of another network's server, at another address, and of no name server."""
    return {
        "another network's gateway": resolved("a1", "web", OTHER_GATEWAY),
        "another network's gateway by tcp": resolved("a1", "web", OTHER_GATEWAY, tcp=True),
        "the uplink": resolved("a1", "web", UPLINK),
        "another port": reached("a1", GATEWAY, SERVICE),
        "from outside": resolved("internet", "web", GATEWAY),
    }


def listening() -> list[str]:
    """The addresses of the node's sockets at the ports of both services."""
    lines = sh("ss -H -lntu").splitlines()
    return sorted({line.split()[4] for line in lines if line.split()[4].rsplit(":", 1)[1] in ("53", "67")})


async def answers(node: Node, stage: Stage) -> dict[str, Any]:
    """The answers with everything in its place."""
    found: dict[str, Any] = {"listening": listening()}
    found["identity"] = [identity(pid) for pid in node.pids()]
    found["names of a1"], found["names of b1"] = names_seen("a1", GATEWAY), names_seen("b1", OTHER_GATEWAY)
    found["by tcp"] = resolved("a1", "db", GATEWAY, tcp=True)
    found["reverse"] = [
        resolved(at, f"11.{vni}.66.10.in-addr.arpa", gateway, kind="PTR")
        for at, vni, gateway in (("a1", 1, GATEWAY), ("a1", 2, GATEWAY), ("b1", 2, OTHER_GATEWAY))
    ]
    # A guest has no address before it asks.
    sh("ip addr flush dev eth0", "a1")
    found["lease"] = leased("a1", WEB)
    found["lease again"] = [
        leased("a1", WEB, client="0102", unicast=True), leased("a1", WEB, client="0304", name="db"),
        leased("a1", WEB, client="0304", name="evil"),
    ]  # fmt: skip
    found["of another card"] = leased("a1", DB)
    _addressed("a1", WEB)
    found["names after"] = [resolved("a2", name, GATEWAY) for name in ("db", "evil", A1.names[0])]
    bridge_netfilter(True)
    asked_for = (("db", GATEWAY), ("web", OTHER_GATEWAY))
    found["bridge netfilter"] = [leased("a1", WEB).get("address"), *(resolved("a1", *one) for one in asked_for)]
    bridge_netfilter(False)
    found["closed"] = closed()
    without = replacement(node.policy, node.guests).replace('counter drop comment "node"', "accept")
    apply_rules(without.replace('counter drop comment "names from outside"', "accept"))
    found["closed, no rules"] = closed()
    await node.networks.tend()
    dropped_before = dropped("asks too often")
    found["flood"] = [flooded("a1", GATEWAY, QUERIES), resolved("a2", "web", GATEWAY), await node.networks.tend()]
    found["flood dropped"] = [dropped_before, dropped("asks too often")]
    return found


def _addressed(namespace: str, guest: Guest) -> None:
    sh(
        f"ip addr replace {guest.order.address}/24 dev eth0; ip route replace default via {guest.order.gateway}",
        namespace,
    )


async def damages(node: Node) -> dict[str, Any]:
    """What is repaired: whether it was damaged, what is answered, and whether the processes are the same."""
    found: dict[str, Any] = {}
    bridge, other, hosts = A1.bridge, B1.bridge, f"{node.directory}/1-*/hosts"
    for name, damage in {
        "nothing": "true",
        "killed": "kill -KILL PIDS",
        "bridge gone": f"ip link delete {bridge}",
        "another file": f"for f in {hosts}; do echo 10.66.1.99 web >$f; done; kill -HUP PIDS",
        "no file": f"rm {hosts}; kill -HUP PIDS",
    }.items():
        before = node.pids()
        sh(damage.replace("PIDS", " ".join(map(str, before))))
        found[f"{name}, before"] = answered_otherwise() if name != "nothing" else False
        restored = await node.networks.tend()
        again = await node.networks.tend()
        found[name] = [
            restored,
            again,
            resolved("a2", "web", GATEWAY),
            leased("a2", DB).get("address"),
            before == node.pids(),
        ]
    # Files that no process has, and the process of an agent with another directory, in a network that has no guests.
    (node.directory / "99-3").mkdir()
    stray = NameServers(Path(f"{node.directory}-before"), Naming("other.internal"), 1400)
    before = node.pids()
    await node.networks.take_out(B1.allocation_id)
    node.guests.remove(OTHER_WEB)
    found["last guest left"] = [
        len(before) - len(node.pids()),
        sorted(path.name[:2] for path in node.directory.iterdir()),
    ]
    sh(f"ip link add {other} type bridge; ip addr add {OTHER_GATEWAY}/24 dev {other}; ip link set {other} up")
    stray.serve(served([OTHER_WEB], ())[2])
    found["stray"] = [len(node.pids()), await node.networks.tend(), len(node.pids()),
                      sorted(path.name[:2] for path in node.directory.iterdir())]  # fmt: skip
    return found


async def agents(node: Node) -> dict[str, Any]:
    """What becomes of processes while agents are replaced, and what guests of the next one are answered."""
    found: dict[str, Any] = {}
    before = node.pids()
    await node.start()
    found["adopted"] = before == node.pids()
    # An agent that was killed after it wrote the files and before its signal.
    file = next(node.directory.glob("1-*/hosts"))
    file.write_text(file.read_text() + f"10.66.1.77 late.{DOMAIN} late\n")
    node.guests[:] = [WEB, DB, late := named(replace(A1, allocation_id=B1.allocation_id, order=A1.order.model_copy(
        update={"address": IPv4Address("10.66.1.77"), "mac": "52:54:0a:42:01:4d", "published": B1.order.published}
    )), "late")]  # fmt: skip
    await node.networks.tend()
    found["came"] = [resolved("a1", "late", GATEWAY), before == node.pids()]
    await node.networks.take_out(late.allocation_id)
    node.guests.remove(late)
    found["left"] = [resolved("a1", "late", GATEWAY), resolved("a1", "web", GATEWAY), before == node.pids()]
    server = upstream("internet")
    try:
        found["no resolvers"] = [resolved("a1", "www.example.org", GATEWAY), asked(server)]
        await node.start(replace(node.policy, naming=Naming(DOMAIN, (IPv4Address(INTERNET),))))
        found["another setting"] = [before == node.pids(), len(node.pids())]
        found["forwarded"] = resolved("a1", "www.example.org", GATEWAY)
        local = (
            ("nothing." + DOMAIN, "A"),
            ("nothing", "A"),
            ("9.1.66.10.in-addr.arpa", "PTR"),
            ("1.0.0.10.in-addr.arpa", "PTR"),
        )
        found["not forwarded"] = [resolved("a1", name, GATEWAY, kind=kind) for name, kind in local]
        found["asked"] = asked(server)
    finally:
        server.kill()
        server.wait()
    await node.start(replace(node.policy, naming=None))
    found["switched off"] = [
        node.pids(),
        [path.name for path in node.directory.iterdir()],
        resolved("a1", "web", GATEWAY),
        leased("a1", WEB),
    ]
    return found


@contextmanager
def staged_node() -> Iterator[tuple[Node, Stage]]:
    """Two tenants on one node; no process is left."""
    with tempfile.TemporaryDirectory(prefix="berth-names-") as name:
        Path(name).chmod(0o711)
        stage = node_with([("a1", A1), ("a2", A2), ("b1", B1)])
        node = Node(Path(name) / "networks", replace(policy(), naming=Naming(DOMAIN)), [WEB, DB, OTHER_WEB])
        try:
            yield node, stage
        finally:
            stage.end()
            for pid in node.pids():
                os.kill(pid, signal.SIGKILL)


async def main() -> None:
    """Print everything."""
    with staged_node() as (node, stage):
        await node.networks.start()
        found = {"answers": await answers(node, stage), "damages": await damages(node), "agents": await agents(node)}
    print(json.dumps(found))  # noqa: T201 - the result


if __name__ == "__main__":
    asyncio.run(main())
