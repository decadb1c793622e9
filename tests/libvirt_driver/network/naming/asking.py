"""Clients in the namespace of a guest: of DHCP by hand-made frames, and of DNS."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from node_agent.drivers.libvirt.network.rules import Guest
from tests.libvirt_driver.network.naming.clients import DHCP, DNS, FLOOD, UPSTREAM

NO_ANSWER: dict[str, Any] = {}


def leased(namespace: str, guest: Guest, *, client: str = "", name: str = "", unicast: bool = False) -> dict[str, Any]:
    """What a DHCP server acknowledges to the guest's card; empty without an answer. `client`: its client identifier, in hex.

    `unicast`: the client has a card that receives at an address that it does not have yet.
    """
    said = _run(namespace, DHCP, guest.order.mac, client, name, "unicast" if unicast else "broadcast")
    return dict(json.loads(said))


def resolved(namespace: str | None, name: str, server: str, *, kind: str = "A", tcp: bool = False) -> dict[str, Any]:
    """The answer to a query: `code` (RFC 1035 §4.1.1) and `answers`; empty without one."""
    return dict(json.loads(_run(namespace, DNS, name, server, kind, "tcp" if tcp else "udp")))


def flooded(namespace: str, server: str, queries: int) -> int:
    """How many of so many queries at once are answered."""
    return int(_run(namespace, FLOOD, server, str(queries)))


def upstream(namespace: str) -> subprocess.Popen[str]:
    """A resolver of everything, which writes down what it is asked."""
    server = subprocess.Popen(
        ["ip", "netns", "exec", namespace, sys.executable, "-Sc", UPSTREAM],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    assert server.stdout.readline() == "listening\n"
    return server


def asked(server: subprocess.Popen[str]) -> list[str]:
    """What the resolver was asked since the last call."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write("?\n")
    server.stdin.flush()
    return list(json.loads(server.stdout.readline()))


def _run(namespace: str | None, program: str, *arguments: str) -> str:
    prefix = [] if namespace is None else ["ip", "netns", "exec", namespace]
    return subprocess.run(
        [*prefix, sys.executable, "-Sc", program, *arguments], capture_output=True, text=True, check=True
    ).stdout
