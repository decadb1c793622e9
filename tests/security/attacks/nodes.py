"""A node listener in a separate process, nodes with certificates, and their raw connections."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.attacks.loopback import HOSTILE_SOURCES, QUIET_SOURCE
from benchmarks.node_api.dispatch import issue_certificates
from benchmarks.seeding import seed_fleet
from berth.local.authority import Authority, ensure_authority
from berth.local.processes import ChildProcess, Endpoints, orchestrator_plan
from berth.local.servers import free_port
from tests.databases import as_roles
from tests.metrics_ports import get
from tests.support.waiting import WAIT_SECONDS_MAX

HEARTBEAT = b'{"agent_version":"test","driver":"sandbox","allocations":[]}'


@dataclass
class NodeListener:
    """A running node listener and the nodes of its fleet."""

    database_url: str
    port: int
    metrics_port: int
    authority: Authority
    nodes: list[dict[str, str]]

    def connect(self, node: int, source: str = QUIET_SOURCE) -> ssl.SSLSocket:
        """A connection with the certificate of a node."""
        context = ssl.create_default_context(cafile=str(self.authority.ca_certificate))
        context.load_cert_chain(self.nodes[node]["certificate"], self.nodes[node]["key"])
        return context.wrap_socket(self.plain(source), server_hostname="127.0.0.1")

    def plain(self, source: str = HOSTILE_SOURCES[0]) -> socket.socket:
        """A connection without a handshake."""
        address = ("127.0.0.1", self.port)
        return socket.create_connection(address, timeout=WAIT_SECONDS_MAX, source_address=(source, 0))

    def waiting(self) -> int:
        """How many nodes wait for tasks."""
        _, text = get(self.metrics_port, "/metrics")
        (line,) = [line for line in text.splitlines() if line.startswith("berth_api_nodes_waiting ")]
        return int(float(line.split()[1]))


@contextmanager
def node_listener(
    database_url: str, directory: Path, nodes: int, settings: Mapping[str, str]
) -> Iterator[NodeListener]:
    """A node listener over a fleet of so many nodes."""
    seed_fleet(database_url, nodes)
    authority = ensure_authority(directory, "berth.local")
    endpoints = Endpoints(database_url, "", "", free_port(), free_port(), as_roles(database_url))
    plan = orchestrator_plan("node", endpoints, authority, free_port())
    process = ChildProcess(plan, directory / "node-api.log")
    process.spawn(settings)
    try:
        process.wait_ready()
        identities = issue_certificates(authority, directory, database_url)
        yield NodeListener(database_url, endpoints.node_port, plan.metrics_port, authority, identities)
    finally:
        process.terminate()
        process.wait_ended()


def heartbeat(connection: ssl.SSLSocket) -> bytes:
    """Send a heartbeat; the status of its response."""
    head = b"POST /node/v1/heartbeat HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n"
    connection.sendall(head + b"content-length: %d\r\n\r\n" % len(HEARTBEAT) + HEARTBEAT)
    received = b""
    while b"\r\n\r\n" not in received or not received.endswith(b"}"):
        received += connection.recv(65_536) or pytest.fail(f"the connection ended: {received!r}")
    return received[9:12]
