"""A public process with its listener for consoles, active allocations, and agents whose every byte the test decides."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from psycopg.rows import dict_row

from berth.local.authority import Authority, ensure_authority
from berth.local.processes import ChildProcess, Endpoints, orchestrator_plan
from berth.local.servers import free_port
from node_agent.wire.console import DATA, END, HELLO, WELCOME, ConsoleHello, frame
from orchestrator.consoles.commands import issue_task
from orchestrator.consoles.queries import find_unsigned
from orchestrator.nodes.certificates import load_authority
from orchestrator.operations.execution import Context
from tests.allocations.driving import provision, run_with
from tests.allocations.seeding import Seeded, SeededNode, create_allocation, seed
from tests.databases import as_roles
from tests.metrics_ports import get
from tests.support.public_api import issuer_settings_over
from tests.support.waiting import wait_for

SECONDS_MAX = 30.0


@dataclass
class AgentLink:
    """A connection to the listener for consoles."""

    connection: ssl.SSLSocket

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self.connection.sendall(frame(kind, payload))

    def hello(self, session_id: uuid.UUID | str, secret_sha256: str) -> None:
        said = ConsoleHello(session_id=uuid.UUID(str(session_id)), secret_sha256=secret_sha256)
        self.send(HELLO, said.model_dump_json().encode())

    def receive(self) -> tuple[bytes, bytes] | None:
        """The next frame; None when the process has closed the connection."""
        header = self._exactly(5)
        if header is None:
            return None
        payload = self._exactly(int.from_bytes(header[1:], "big"))
        return header[:1], payload or b""

    def received_until(self, wanted: bytes) -> bytes:
        data = b""
        while wanted not in data:
            found = self.receive()
            assert found is not None, data
            data += found[1] if found[0] == DATA else b""
        return data

    def end(self, reason: str = "guest_ended") -> None:
        self.send(END, json.dumps({"reason": reason}).encode())

    def _exactly(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                piece = self.connection.recv(count - len(data))
            except (ConnectionError, ssl.SSLError):
                return None
            if not piece:
                return None
            data += piece
        return data


@dataclass
class ConsoleStage:
    """The process, its database, a tenant with keys, and the node CA."""

    url: str
    directory: Path
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files: Authority = ensure_authority(self.directory, "berth.local")
        self.endpoints = Endpoints(
            self.url, "", "", free_port(), free_port(), as_roles(self.url), console_port=free_port()
        )
        plan = orchestrator_plan("public", self.endpoints, self.files, free_port())
        self.process = ChildProcess(plan, self.directory / "api.log")
        self.seeded: Seeded = seed(self.url, slice_nodes=4)
        self._authority = load_authority(issuer_settings_over(self.url, self.directory))
        self._links: list[AgentLink] = []
        self.execute("update nodes set agent_features = '{burn_in,console}', agent_version = '0.1'")

    @property
    def api(self) -> str:
        return self.endpoints.api_url

    def execute(self, statement: str, *values: Any) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode(), values)

    def rows(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def sessions(self, allocation_id: uuid.UUID) -> list[dict[str, Any]]:
        return self.rows("select * from console_sessions where allocation_id = %s order by id", allocation_id)

    def ended(self, session_id: uuid.UUID | str) -> dict[str, Any]:
        """The session's row, once it has ended."""
        found: list[dict[str, Any]] = []

        def over() -> bool:
            found[:] = self.rows(
                "select * from console_sessions where id = %s and ended_at is not null", uuid.UUID(str(session_id))
            )
            return bool(found)

        wait_for(over, "the end of the session")
        return found[0]

    def key(self, role: str = "member", tenant_id: uuid.UUID | None = None) -> str:
        """A new key of the tenant, or of another."""
        key = f"berth_{os.urandom(4).hex()}_{os.urandom(32).hex()}"
        self.execute(
            "insert into api_keys (role, access_role, name, prefix, secret_hash, tenant_id)"
            " values ('tenant', %s, 'test', %s, %s, %s)",
            role, key[6:14], hashlib.sha256(key.encode()).digest(), tenant_id or self.seeded.tenant_id,
        )  # fmt: skip
        return key

    def active(self) -> uuid.UUID:
        """A new active allocation of one GPU."""

        async def work(context: Context) -> uuid.UUID:
            made = create_allocation(self.url, self.seeded)
            await provision(context, self.url, made)
            return made

        return run_with(self.url, work)

    def node_of(self, allocation_id: uuid.UUID) -> uuid.UUID:
        (row,) = self.rows("select node_id from allocations where id = %s", allocation_id)
        found: uuid.UUID = row["node_id"]
        return found

    def issue(self, session_id: uuid.UUID | str) -> str:
        """As the worker: sign the session's task; the hash that the task names."""

        async def work(context: Context) -> bool:
            assert uuid.UUID(str(session_id)) in await find_unsigned(context, 100)
            return await issue_task(context, uuid.UUID(str(session_id)), 15.0)

        assert run_with(self.url, work)
        (row,) = self.rows("select secret_sha256 from console_sessions where id = %s", uuid.UUID(str(session_id)))
        return str(row["secret_sha256"])

    def certificate(self, node_id: uuid.UUID, *, recorded: bool = True) -> Path:
        """A certificate for a node, of the node CA."""
        key = ec.generate_private_key(ec.SECP256R1())
        issued = self._authority.issue(key.public_key(), node_id)
        path = self.directory / f"{issued.serial}.pem"
        path.write_text(issued.pem + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
        if recorded:
            self.execute(
                "insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)"
                " select %s, id, epoch, %s, %s, %s from nodes where id = %s",
                issued.serial, issued.key_sha256, issued.not_before, issued.not_after, node_id,
            )  # fmt: skip
        return path

    def dial(self, certificate: Path | None, connected: socket.socket | None = None) -> AgentLink:
        """A connection with this client certificate, over one that is `connected` already."""
        context = ssl.create_default_context(cafile=str(self.files.ca_certificate))
        if certificate is not None:
            context.load_cert_chain(certificate)
        where = ("127.0.0.1", self.endpoints.console_port)
        plain = connected or socket.create_connection(where, timeout=SECONDS_MAX)
        link = AgentLink(context.wrap_socket(plain, server_hostname="127.0.0.1"))
        self._links.append(link)
        return link

    def joined(self, session_id: uuid.UUID | str) -> AgentLink:
        """The agent of the session's node, connected and welcomed."""
        digest = self.issue(session_id)
        (row,) = self.rows("select node_id from console_sessions where id = %s", uuid.UUID(str(session_id)))
        link = self.dial(self.certificate(row["node_id"]))
        link.hello(session_id, digest)
        welcome = link.receive()
        assert welcome is not None
        assert welcome[0] == WELCOME
        assert hashlib.sha256(welcome[1]).hexdigest() == digest
        return link

    def metric(self, series: str) -> float:
        _, text = get(self.process.plan.metrics_port, "/metrics")
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(series))

    def close(self) -> None:
        for link in self._links:
            link.connection.close()
        self.process.terminate()
        self.process.wait_ended()


@contextmanager
def console_stage(url: str, directory: Path, **settings: str) -> Iterator[ConsoleStage]:
    """A running process with these settings."""
    stage = ConsoleStage(url, directory)
    stage.process.spawn(settings)
    try:
        stage.process.wait_ready()
        yield stage
    finally:
        stage.close()


def other_node(stage: ConsoleStage, node_id: uuid.UUID) -> SeededNode:
    """A node of the fleet that is not this one."""
    return next(node for node in stage.seeded.nodes if node.id != node_id)
