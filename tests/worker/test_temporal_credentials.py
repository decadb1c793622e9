"""The client certificate and the API key of Temporal are replaced while the worker runs: it connects anew by itself.

Temporal is the development server behind a TLS end that requires certificates of the deployment's authority, as the
deployed one does, and that can revoke one.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.local.servers import LocalTemporal
from tests.allocations.seeding import Seeded, create_allocation, seed
from tests.deploy import deployment
from tests.support.waiting import wait_for
from tests.support.worker_processes import Processes, play_nodes, release_all
from tests.tls_front import TlsFront, tls_front
from tests.worker.deployed_temporal import API_KEY, ELSEWHERE, deployed, holds_api_key, server_context

NEW_API_KEY = "terces" * 4
STALE = "berth_worker_temporal_credentials_stale"


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A directory that deploy/make-secrets filled, and a file with an API key."""
    directory = tmp_path / "secrets"
    deployment.make_secrets(directory)
    (directory / "api_key").write_text(API_KEY + "\n")
    return directory


@pytest.fixture
def front(temporal_server: LocalTemporal, secrets: Path) -> Iterator[TlsFront]:
    """Temporal as it is deployed: with its certificate, for clients with one of the deployment's."""
    with tls_front(temporal_server.port, server_context(secrets, client_certificates=True)) as running:
        yield running


def serials(front: TlsFront) -> list[str]:
    """The serial numbers of the certificates that clients have shown, each once, in order."""
    return list(dict.fromkeys(str(peer["serialNumber"]) for peer in front.peers))


def live_and_end(processes: Processes, seeded: Seeded) -> None:
    """An allocation becomes active and is released: workflows are started, signalled, and executed."""
    allocation = create_allocation(processes.url, seeded)
    play_nodes(processes.url, {allocation: "active"})
    release_all(processes.url, seeded, [allocation])
    play_nodes(processes.url, {allocation: "released"})


def start(processes: Processes, front: TlsFront, secrets: Path) -> int:
    """A relay and a worker that is ready; the worker's process id."""
    processes.temporal_address = f"{ELSEWHERE}:{front.port}"
    processes.start_relay()
    return processes.start_worker(**deployed(secrets), temporal_reload_seconds=0.2).pid


def renew(secrets: Path) -> None:
    """Make another certificate for Temporal's clients, as the page says."""
    for part in ("certificate", "key"):
        (secrets / f"temporal_client_{part}.pem").unlink()
    deployment.make_secrets(secrets)


@pytest.mark.full
def test_a_worker_connects_anew_with_replaced_files_and_loses_nothing(
    processes: Processes, front: TlsFront, secrets: Path
) -> None:
    seeded = seed(processes.url)
    start(processes, front, secrets)
    live_and_end(processes, seeded)
    waiting = create_allocation(processes.url, seeded)
    play_nodes(processes.url, {waiting: "provisioning"}, lambda task: None)
    (old,) = serials(front)
    renew(secrets)
    (secrets / "new_key").write_text(NEW_API_KEY + "\n")
    (secrets / "new_key").replace(secrets / "api_key")
    wait_for(
        lambda: len(serials(front)) == 2 and holds_api_key(front.received, NEW_API_KEY),
        "a connection with the new certificate and the new API key",
    )
    front.revoke(old)
    play_nodes(processes.url, {waiting: "active"})
    live_and_end(processes, seeded)
    assert serials(front)[0] == old
    assert processes.metric(STALE) == 0
    log = processes.log("worker")
    assert "temporal_credentials_reloaded" in log
    assert NEW_API_KEY not in log


# Long; the quicker test: test_a_worker_connects_anew_with_replaced_files_and_loses_nothing.
@pytest.mark.full
def test_the_worker_goes_on_with_the_earlier_files_until_the_new_ones_can_be_used(
    processes: Processes, front: TlsFront, secrets: Path
) -> None:
    seeded = seed(processes.url)
    start(processes, front, secrets)
    before = serials(front)
    key = secrets / "temporal_client_key.pem"
    kept = key.read_bytes()
    shutil.copy(secrets / "nats_key.pem", secrets / "another")
    (secrets / "another").replace(key)
    wait_for(lambda: processes.metric(STALE) == 1, "the key of another certificate to be refused")
    live_and_end(processes, seeded)
    # A certificate that Temporal refuses: not for clients.
    (secrets / "temporal_client_certificate.pem").write_bytes((secrets / "nats_certificate.pem").read_bytes())
    wait_for(lambda: "it refuses the client certificate" in processes.log("worker"), "Temporal's refusal")
    live_and_end(processes, seeded)
    assert serials(front) == before
    renew(secrets)
    wait_for(lambda: processes.metric(STALE) == 0, "files that can be used")
    assert len(serials(front)) == 2
    live_and_end(processes, seeded)
    assert "PRIVATE KEY" not in processes.log("worker")
    assert kept.decode().splitlines()[1] not in processes.log("worker")


@pytest.mark.full
def test_a_missing_file_is_reported_and_its_return_is_no_change_of_the_connection(
    processes: Processes, front: TlsFront, secrets: Path
) -> None:
    seeded = seed(processes.url)
    start(processes, front, secrets)
    file = secrets / "api_key"
    away = file.rename(secrets / f"away-{uuid.uuid4()}")
    wait_for(lambda: processes.metric(STALE) == 1, "the missing file to be reported")
    assert "BERTH_TEMPORAL_API_KEY_FILE cannot be read" in processes.log("worker")
    away.rename(file)
    wait_for(lambda: processes.metric(STALE) == 0, "the file to be back")
    live_and_end(processes, seeded)
    assert "temporal_credentials_reloaded" not in processes.log("worker")
