"""How an emulated machine and this host reach each other: QEMU's user network, and a local route to the machine's SSH port."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from berth.cli.known_stack import StackProblem

HOST = "10.0.2.2"
"""How QEMU's user network calls this host's loopback address."""
PREFIX_LENGTH = 24
UNPRIVILEGED_PORTS = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
SSH_PORT = 22


def port_arguments(mac: str, address: str | None = None) -> list[str]:
    """QEMU's arguments for the machine's network port; with an `address`, its SSH port is reached there (`reachable`)."""
    forwarded = "" if address is None else f",dhcpstart={address},hostfwd=tcp:{address}:{SSH_PORT}-{address}:{SSH_PORT}"
    return [
        "-netdev", f"user,id=n0{forwarded}",
        "-device", f"virtio-net-pci,netdev=n0,mac={mac},romfile=,addr=0x1e",
    ]  # fmt: skip


def require_own_network() -> None:
    """Raise `StackProblem` unless `lo` is the only interface: this changes routes, and never those of a host."""
    others = [name for _, name in socket.if_nameindex() if name != "lo"]
    if others:
        raise StackProblem(
            f"emulated machines need a network namespace without other interfaces (here is {others[0]}):"
            " make demo DRIVER=redfish"
        )


@contextmanager
def reachable(addresses: Sequence[str]) -> Iterator[None]:
    """In this network namespace these addresses lead to the ports that QEMU, which is not root, forwards."""
    require_own_network()
    UNPRIVILEGED_PORTS.write_text(str(SSH_PORT))
    made: list[list[str]] = []
    try:
        for address in addresses:
            # QEMU shows the guest a peer at the host's address only for one of 127.0.0.0/8.
            route = [f"{address}/32", "dev", "lo", "src", "127.0.0.1", "table", "local"]
            subprocess.run(["ip", "route", "replace", "local", *route], check=True, capture_output=True)
            made.append(route)
        yield
    finally:
        for route in made:
            subprocess.run(["ip", "route", "del", "local", *route], check=False, capture_output=True)
