"""A node with tenants on network namespaces: the node is the process's own namespace, guests and hosts are others.

A guest's card is one end of a veth pair; the other end has the name of the guest's tap, so the code under test makes it a
port of the bridge as it would a tap. Run a module of this folder with `staged`, which gives it separate namespaces.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node_agent.drivers.libvirt.network.policy import Naming, Policy
from node_agent.drivers.libvirt.network.rules import Guest
from node_agent.wire.networks import NetworkOrder, PublishedPort

UPLINK, INTERNET = "198.51.100.1", "198.51.100.2"
MANAGED, MANAGEMENT = "10.99.0.1", "10.99.0.2"
METADATA = "169.254.169.254"
SERVICE = 8099
CLOSED = (IPv4Network("10.0.0.0/8"), IPv4Network("192.168.0.0/16"))
# Says its name and the address of the client, once for each connection.
_SERVER = """
import socketserver, sys
class Greeting(socketserver.BaseRequestHandler):
    def handle(self): self.request.sendall(f"{sys.argv[1]} {self.client_address[0]}".encode())
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(("0.0.0.0", int(sys.argv[2])), Greeting)
print("listening", flush=True)
server.serve_forever()
"""
_PROBE = """
ip link add probe type bridge; ip link add end type veth peer name other; ip link set end master probe
nft add table bridge probe; nft add table inet probe; test -e /proc/sys/net/bridge/bridge-nf-call-iptables
"""
_CLIENT = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 1.5) as it:
        it.settimeout(1.5)
        print(it.recv(100).decode())
except OSError:
    pass
"""


@functools.cache
def why_no_networks() -> str | None:
    """What this machine lacks; None if nothing. A kernel may have namespaces and no nftables for bridges."""
    missing = [name for name in ("nft", "ip", "conntrack", "unshare") if shutil.which(name, path=_path()) is None]
    if os.geteuid() != 0 or missing:
        return f"namespaces need root and {', '.join(missing) or 'nothing else'}"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-euc", _PROBE], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PATH": _path()},
    )  # fmt: skip
    return None if done.returncode == 0 else f"this kernel makes no tenant networks: {done.stderr.strip()[-200:]}"


def why_no_name_servers() -> str | None:
    """What this machine lacks to serve names; None if nothing."""
    missing = [name for name in ("dnsmasq", "setpriv") if shutil.which(name, path=_path()) is None]
    return f"names of guests need dnsmasq-base: {', '.join(missing)} is not installed" if missing else why_no_networks()


def staged(module: str, *arguments: str, seconds: float = 200, variables: Mapping[str, str] | None = None) -> Any:
    """Run a module in new network and mount namespaces; what it printed last, from JSON. Skips where it cannot.

    `variables`: of its environment.
    """
    if (reason := why_no_networks()) is not None:
        pytest.skip(reason)
    script = 'mkdir -p /run/netns; mount -t tmpfs none /run/netns; ip link set lo up; exec "$@"'
    command = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-euc", script, "sh"]
    done = subprocess.run(
        [*command, sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False, timeout=seconds,
        env={**os.environ, "PATH": _path(), **(variables or {})},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def guest(number: int, vni: int, host: int) -> Guest:
    """A guest of network `vni`, whose subnet is 10.66.<vni>.0/24."""
    order = NetworkOrder(
        network_id=UUID(int=vni), vni=vni, subnet=IPv4Network(f"10.66.{vni}.0/24"),
        gateway=IPv4Address(f"10.66.{vni}.1"), address=IPv4Address(f"10.66.{vni}.{host}"),
        mac=f"52:54:0a:42:{vni:02x}:{host:02x}", published=[PublishedPort(port=30_000 + number, guest_port=22)],
    )  # fmt: skip
    return Guest(UUID(int=number), order)


A1, A2, B1 = guest(1, 1, 11), guest(2, 1, 12), guest(3, 2, 11)


def policy(*, egress: bool = False, naming: Naming | None = None) -> Policy:
    """The node's: published ports at its uplink, private networks closed."""
    return Policy(IPv4Address(UPLINK), CLOSED, egress, naming=naming)


def sh(text: str, namespace: str | None = None, *, check: bool = True) -> str:
    """Run a shell in a namespace, or in the node's; its output."""
    prefix = [] if namespace is None else ["ip", "netns", "exec", namespace]
    return subprocess.run([*prefix, "sh", "-euc", text], capture_output=True, text=True, check=check).stdout


@dataclass
class Stage:
    """The namespaces, and the servers that run in them."""

    servers: list[subprocess.Popen[str]]

    def host(self, name: str, link: str, own: str, peer: str) -> None:
        """A host beside the node, with the node as its router and a server."""
        sh(f"""ip netns add {name}; ip link add {link} type veth peer name e0 netns {name}
               ip addr add {own}/24 dev {link}; ip link set {link} up""")
        sh(f"ip link set lo up; ip addr add {peer}/24 dev e0; ip link set e0 up; ip route add default via {own}", name)
        self.serve(name, name, SERVICE)

    def card(self, name: str, of: Guest) -> None:
        """The namespace of a guest, with its card and an SSH server's port."""
        order = of.order
        sh(f"ip netns add {name}; ip link add {of.tap} type veth peer name eth0 netns {name} address {order.mac}")
        sh(
            f"""ip link set lo up; ip link set eth0 up addrgenmode none
               ip addr add {order.address}/{order.subnet.prefixlen} dev eth0; ip route add default via {order.gateway}""",
            name,
        )
        self.serve(name, name, 22)

    def serve(self, namespace: str | None, name: str, port: int) -> None:
        """Start a server that says its name."""
        prefix = [] if namespace is None else ["ip", "netns", "exec", namespace]
        server = subprocess.Popen(
            [*prefix, sys.executable, "-Sc", _SERVER, name, str(port)], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        self.servers.append(server)

    def end(self) -> None:
        """End every server."""
        for server in self.servers:
            server.kill()
            server.wait()


def node_with(guests: Iterable[tuple[str, Guest]]) -> Stage:
    """The node with an uplink, a management network, the metadata address and a service, and these guests' cards."""
    stage = Stage([])
    sh("echo 1 >/proc/sys/net/ipv4/ip_forward")
    stage.host("internet", "up0", UPLINK, INTERNET)
    stage.host("management", "mg0", MANAGED, MANAGEMENT)
    sh(f"ip addr add {METADATA}/32 dev mg0")
    stage.serve(None, "node", SERVICE)
    for name, one in guests:
        stage.card(name, one)
    return stage


def reached(namespace: str | None, address: str, port: int) -> str:
    """What a server there says to a client in this namespace; empty if nothing arrives."""
    prefix = [] if namespace is None else ["ip", "netns", "exec", namespace]
    done = subprocess.run(
        [*prefix, sys.executable, "-Sc", _CLIENT, address, str(port)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def bridge_netfilter(on: bool) -> None:
    """Switch br_netfilter for this namespace, where the module is loaded."""
    for setting in Path("/proc/sys/net/bridge").glob("bridge-nf-call-*"):
        setting.write_text("1" if on else "0")


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"
