"""The node listener as a real process over TLS, nodes with real certificates, and tasks that wait for them."""

from __future__ import annotations

import json
import ssl
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from berth.local.authority import Authority, ensure_authority
from berth.local.processes import ChildProcess, Endpoints, orchestrator_plan
from berth.local.servers import LocalPostgres, free_port
from orchestrator.nodes.certificates import IssuedCertificate, load_authority
from tests.databases import as_roles, copied_database
from tests.metrics_ports import get
from tests.placement.fleet import ADD_NODES, Fleet
from tests.support.public_api import issuer_settings_over


@dataclass
class NodeClient:
    """One node's own connection."""

    node_id: uuid.UUID
    serial: str
    http: httpx.Client

    def wait(self, timeout_seconds: float = 0.0, known: list[str] | None = None) -> list[str]:
        """The ids of the tasks that a wait answers."""
        parameters: dict[str, float | list[str]] = {"timeout_seconds": timeout_seconds, "known": known or []}
        answer = self.http.get("/node/v1/tasks/wait", params=parameters)
        assert answer.status_code == 200, answer.text
        return [task["task_id"] for task in answer.json()["tasks"]]


class NodeListener:
    """The process, its database and its authority."""

    def __init__(self, directory: Path, database_url: str) -> None:
        self.fleet = Fleet(database_url)
        self.directory = directory
        self.files: Authority = ensure_authority(directory, "berth.local")
        endpoints = Endpoints(database_url, "", "", free_port(), free_port(), as_roles(database_url))
        self.url = endpoints.node_api_url
        self.process = ChildProcess(
            orchestrator_plan("node", endpoints, self.files, free_port()), directory / "node-api.log"
        )
        self.authority = load_authority(issuer_settings_over(database_url, directory))

    def nodes(self, count: int = 1) -> list[uuid.UUID]:
        """Nodes that no test has used before."""
        self.fleet.connection.execute(ADD_NODES, (count, "gpu_slice"))
        rows = self.fleet.connection.execute("select id from nodes order by unit_base desc limit %s", (count,))
        return [row[0] for row in rows.fetchall()]

    def certificate(self, node_id: uuid.UUID) -> tuple[IssuedCertificate, Path]:
        """A certificate that our CA issued for a node, not recorded yet; and the file with it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        issued = self.authority.issue(key.public_key(), node_id)
        path = self.directory / f"{issued.serial}.pem"
        path.write_text(issued.pem + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
        return issued, path

    def record(self, node_id: uuid.UUID, issued: IssuedCertificate) -> None:
        """Record the certificate as enrolment does."""
        self.fleet.connection.execute(
            "insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)"
            " select %s, id, epoch, %s, %s, %s from nodes where id = %s",
            (issued.serial, issued.key_sha256, issued.not_before, issued.not_after, node_id),
        )

    def client(self, certificate: Path | None) -> httpx.Client:
        """A connection with this client certificate, or without one."""
        context = ssl.create_default_context(cafile=str(self.files.ca_certificate))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return httpx.Client(base_url=self.url, verify=context, timeout=60)

    def node(self, node_id: uuid.UUID) -> NodeClient:
        """An enrolled node."""
        issued, path = self.certificate(node_id)
        self.record(node_id, issued)
        return NodeClient(node_id, issued.serial, self.client(path))

    def queue_task(self, node_id: uuid.UUID, *, seconds: float = 600) -> str:
        """A queued health probe for a node; only the row matters here, so the envelope's signature is a dummy."""
        task_id = str(uuid.uuid4())
        envelope = {
            "payloadType": "application/vnd.berth.task+json", "payload": "e30=", "signatures": [{"keyid": "k", "sig": "AA=="}],
        }  # fmt: skip
        self.fleet.connection.execute(
            "insert into node_tasks (id, node_id, node_epoch, type, fence, envelope, not_before, expires_at)"
            " select %s, id, epoch, 'diag.health_probe', 1, %s, now() - interval '1 minute',"
            " clock_timestamp() + make_interval(secs => %s) from nodes where id = %s",
            (task_id, json.dumps(envelope), seconds, node_id),
        )
        return task_id

    def waiting_nodes(self) -> int:
        """How many nodes the process says are waiting."""
        _, text = get(self.process.plan.metrics_port, "/metrics")
        (line,) = [line for line in text.splitlines() if line.startswith("berth_api_nodes_waiting ")]
        return int(float(line.split()[1]))

    def state_of(self, task_id: str) -> object:
        """A task's state."""
        return self.fleet.one("select state from node_tasks where id = %s", task_id)


@pytest.fixture(scope="module")
def listener(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: LocalPostgres, migrated_template: str
) -> Iterator[NodeListener]:
    """A running node listener, shared by the tests of a module; each test enrols new nodes."""
    with copied_database(postgres_server, migrated_template) as url:
        found = NodeListener(tmp_path_factory.mktemp("node-api"), url)
        found.process.spawn()
        found.process.wait_ready()
        yield found
        found.process.terminate()
        found.process.wait_ended()
