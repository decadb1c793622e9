"""Each key of nodes is replaced by the commands of docs/how-to/rotate-secrets.md while processes run and tasks are executed."""

from __future__ import annotations

import hashlib
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from berth.local.servers import LocalPostgres
from orchestrator.tasks.signing import load_signer
from tests.databases import copied_database
from tests.metrics_ports import get
from tests.rotation.running import Deployment
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def deployed(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Both listeners, an issuer and two agents that work."""
    with copied_database(postgres_server, migrated_template) as url:
        found = Deployment(tmp_path_factory.mktemp("deployment"), url)
        try:
            found.start_control_plane()
            found.add_agents(2)
            found.works()
            yield found
        finally:
            found.stop()


def ca_id(certificate: Path) -> str:
    """The CA as `berth doctor` names it."""
    key = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()[:16]


def blocks(file: Path) -> list[str]:
    """The PEM blocks of a file."""
    end = "-----END CERTIFICATE-----\n" if "CERTIFICATE" in file.read_text() else "-----END PUBLIC KEY-----\n"
    return [block + end for block in file.read_text().split(end) if block.strip()]


def remove_first_block(file: Path) -> None:
    """Remove the oldest key or CA, in place."""
    _, *kept = blocks(file)
    file.write_text("".join(kept))


def answers(deployed: Deployment, client: Path, ca: Path) -> bool:
    """Whether the node listener has a certificate under this CA and accepts this client's."""
    context = ssl.create_default_context(cafile=str(ca))
    context.load_cert_chain(client)
    try:
        with (
            socket.create_connection(("127.0.0.1", deployed.endpoints.node_port), 5) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(b"GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return connection.recv(4096).startswith(b"HTTP/1.1 200")
    except (ssl.SSLError, ConnectionError):
        return False


def newest_cas(deployed: Deployment) -> set[str]:
    """The CAs of the nodes' newest certificates."""
    rows = deployed.database.execute(
        "select distinct on (node_id) encode(substr(authority_key_sha256, 1, 8), 'hex') from node_certificates"
        " order by node_id, issued_at desc"
    )
    return {str(ca) for (ca,) in rows.fetchall()}


# Long. tests/node_agent/test_key_sets.py replaces a key in `make test`.
@pytest.mark.full
def test_the_key_that_signs_tasks_is_replaced_while_nodes_work(deployed: Deployment) -> None:
    first, *_ = deployed.nodes
    stolen = load_signer(deployed.files.task_signing_key)
    before, listeners = deployed.serial(), deployed.pids("api", "node-api")
    with deployed.tasks_throughout():
        kept = deployed.files.task_signing_key.read_bytes()
        deployed.files.task_signing_key.unlink()
        deployed.make_secrets()
        new = deployed.files.task_signing_key.read_bytes()
        deployed.files.task_signing_key.write_bytes(kept)  # the worker has the old one still
        deployed.wait_for_key_set(before + 1)
        deployed.works()
        deployed.files.task_signing_key.write_bytes(new)
        deployed.works()
        late = deployed.queue(first, stolen.key_id, stolen.sign)
        wait_for(lambda: deployed.state(late) == "completed", "a task of the old key during the overlap")
    remove_first_block(deployed.files.task_verifying_keys)
    deployed.sign_key_set()
    deployed.wait_for_key_set(before + 2)
    planted = deployed.queue(first, stolen.key_id, stolen.sign)
    deployed.works()
    rejected = 'berth_agent_envelopes_rejected_total{reason="unknown_key"}'
    port = deployed.children[f"agent {first}"].plan.metrics_port
    wait_for(lambda: rejected in get(port, "/metrics")[1], "the stolen key's task to be rejected")
    assert deployed.state(planted) == "dispatched"
    assert deployed.pids("api", "node-api") == listeners, "no listener was restarted"


# Long; the quicker test: tests/node_agent/test_key_sets.py.
@pytest.mark.full
def test_the_node_ca_is_replaced_while_nodes_work(deployed: Deployment, tmp_path: Path) -> None:
    files, (first, second) = deployed.files, deployed.nodes
    before, running = deployed.serial(), deployed.pids("api", "node-api")
    old_ca, old_client, old_id = tmp_path / "old-ca.pem", tmp_path / "old-client.pem", ca_id(files.ca_certificate)
    shutil.copy(files.ca_certificate, old_ca)
    shutil.copy(deployed.directory / first / "identity" / "client.pem", old_client)
    with deployed.tasks_throughout():
        for file in (files.ca_certificate, files.ca_key):
            file.unlink()
        deployed.make_secrets()
        new_id = ca_id(files.ca_certificate)
        deployed.wait_for_key_set(before + 1)
        deployed.start_issuer()
        wait_for(lambda: newest_cas(deployed) == {new_id}, "renewals to move the nodes to the new CA")
        assert old_id in deployed.findings()["node CAs"][1], "the CA is still needed"
        for file in (files.listener_certificate, files.listener_key):
            file.unlink()
        deployed.make_secrets()
        wait_for(lambda: answers(deployed, old_client, files.ca_certificate), "the listener's new certificate")
        assert not answers(deployed, old_client, old_ca), "the listener's old certificate is gone"
        deployed.restart_agent(first)
        deployed.works()
        # Time passes: the certificates of the old CA end.
        deployed.database.execute(
            "update node_certificates set not_after = clock_timestamp() where encode(authority_key_sha256, 'hex') like %s",
            (f"{old_id}%",),
        )
        assert old_id not in deployed.findings()["node CAs"][1]
        remove_first_block(files.ca_certificates)
        deployed.sign_key_set()
        deployed.wait_for_key_set(before + 2)
        wait_for(lambda: not answers(deployed, old_client, files.ca_certificate), "the old CA to be refused")
        deployed.restart_agent(second)
        deployed.works()
    assert deployed.pids("api", "node-api") == running, "no listener was restarted"
    assert len(blocks(files.ca_certificates)) == 1
