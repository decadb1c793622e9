"""A process reaches a PostgreSQL on another machine over verified TLS, unless its address names another mode."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from pydantic import TypeAdapter

from berth.local.servers import LocalPostgres
from berth.process.server_addresses import DatabaseUrl, verified_database_url
from tests.deploy import deployment
from tests.tls_front import PostgresTlsFront, tls_front

ELSEWHERE = "127.1"
"""The loopback address in a form (inet_aton(3)) that is not recognized as one: so it counts as another machine."""
READ = TypeAdapter(DatabaseUrl)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that deploy/make-secrets filled."""
    directory = tmp_path_factory.mktemp("deployment") / "secrets"
    deployment.make_secrets(directory)
    return directory


@pytest.fixture(autouse=True)
def no_given_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """libpq's variables say nothing."""
    for name in ("PGSSLMODE", "PGSSLROOTCERT", "PGHOST"):
        monkeypatch.delenv(name, raising=False)


def server_context(secrets: Path) -> ssl.SSLContext:
    """What the PostgreSQL of the deployment uses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secrets / "postgres_certificate.pem", secrets / "postgres_key.pem")
    return context


def address(server: LocalPostgres, host: str, port: int, parameters: str = "") -> str:
    """An address of the test's PostgreSQL, as a process reads it from its settings."""
    return READ.validate_python(f"postgresql://postgres:{server.password}@{host}:{port}/postgres{parameters}")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://berth:pw@db.example.org/berth",
        "postgresql://berth:pw@203.0.113.7:5432/berth?application_name=x",
        "postgresql://berth:pw@[2001:db8::7]:5432/berth",
        "postgresql://berth:pw@/berth?host=127.0.0.1,db.example.org",
        "postgresql:///berth?host=db.example.org",
        "postgresql://localhost/berth?hostaddr=203.0.113.7",
    ],
)
def test_another_machine_is_verified_by_default(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = READ.validate_python(url)
    assert read in (f"{url}?sslmode=verify-full", f"{url}&sslmode=verify-full")
    assert psycopg.conninfo.conninfo_to_dict(read)["sslmode"] == "verify-full"
    assert READ.validate_python(read) == read
    monkeypatch.setenv("PGSSLMODE", "require")
    assert READ.validate_python(url) == url


def test_the_host_of_the_environment_is_another_machine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verified_database_url("postgresql:///berth") == "postgresql:///berth"
    monkeypatch.setenv("PGHOST", "db.example.org")
    assert verified_database_url("postgresql:///berth") == "postgresql:///berth?sslmode=verify-full"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://berth:pw@127.0.0.1:5432/berth",
        "postgresql://berth:pw@[::1]/berth",
        "postgresql://localhost/berth",
        "postgresql:///berth?host=/run/postgresql",
        "postgresql://%2Frun%2Fpostgresql/berth",
        "postgresql://berth:pw@db.example.org/berth?sslmode=disable",
    ],
)
def test_this_machine_and_a_given_mode_are_left_alone(url: str) -> None:
    assert READ.validate_python(url) == url


def test_without_tls_nothing_is_sent(postgres_server: LocalPostgres) -> None:
    with tls_front(postgres_server.port, None, PostgresTlsFront) as front:
        with pytest.raises(psycopg.OperationalError, match="does not support SSL, but SSL was required"):
            psycopg.connect(address(postgres_server, ELSEWHERE, front.port), sslrootcert="system")
        assert front.in_clear == b""


def test_a_given_mode_decides(postgres_server: LocalPostgres) -> None:
    with tls_front(postgres_server.port, None, PostgresTlsFront) as front:
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(address(postgres_server, ELSEWHERE, front.port, "?sslmode=prefer"))
        assert b"postgres" in front.in_clear


def test_the_deployments_authority_admits_its_server_under_its_name_alone(
    postgres_server: LocalPostgres, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_front(postgres_server.port, server_context(secrets), PostgresTlsFront) as front:
        url = address(postgres_server, "postgres", front.port)
        assert urlsplit(url).query == "sslmode=verify-full"
        with pytest.raises(psycopg.OperationalError, match="root certificate"):
            psycopg.connect(url, hostaddr="127.0.0.1")
        monkeypatch.setenv("PGSSLROOTCERT", str(secrets / "server_ca_certificate.pem"))
        with psycopg.connect(url, hostaddr="127.0.0.1") as connection:
            assert connection.execute("select 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError, match="does not match host name"):
            psycopg.connect(address(postgres_server, "elsewhere", front.port), hostaddr="127.0.0.1")
        monkeypatch.setenv("PGSSLROOTCERT", str(secrets / "node_ca_certificate.pem"))
        with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
            psycopg.connect(url, hostaddr="127.0.0.1")
