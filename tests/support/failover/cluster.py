"""Three PostgreSQL servers that replicate by streaming, promoted by the test: what Patroni does, one step at a time.

The server that is promoted and whether commits wait for a standby are the test's choice, so that it can lose commits.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

import migrations
from berth.local.servers import LocalPostgres, free_port, new_password, postgres_user
from berth.local.system_users import run_as
from migrations.roles import Role
from orchestrator.database.transactions import Database, connect_database
from tests.support.waiting import wait_for


class Member(LocalPostgres):
    """One server of the cluster. A standby is copied from `primary` at its first start.

    `environment` is added to that of its processes.
    """

    environment: Mapping[str, str] = {}

    def __init__(self, directory: Path, name: str, password: str, primary: Member | None = None) -> None:
        # A standby that connects late still finds its log: a copy for another one ends the segment that it needs.
        settings = {"cluster_name": name, "wal_keep_size": "512MB"}
        super().__init__(directory / name / "data", free_port(), password, settings)
        self.name = name
        self.primary = primary

    def start(self) -> None:
        """Start; a standby follows its primary."""
        if self.primary is not None and not (self.directory / "PG_VERSION").exists():
            self._copy(self.primary)
        super().start()

    def _spawn(
        self, command: Sequence[str], user: str | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        return super()._spawn(command, user, {**(environment or os.environ), **self.environment})

    def set(self, name: str, value: str) -> None:
        """Change a setting that needs no restart."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), sql.Literal(value)))
            connection.execute("select pg_reload_conf()")

    def follow(self, primary: Member) -> None:
        """From now on a standby of another server."""
        self.set("primary_conninfo", f"{primary.url('postgres')}?application_name={self.name}")

    def wait_for_commits_of(self, *standbys: Member) -> None:
        """Every commit waits from now on until one of these has it; returns when one is connected."""
        self.set("synchronous_standby_names", f"ANY 1 ({', '.join(standby.name for standby in standbys)})")
        wait_for(lambda: self._quorum() > 0, "a standby is there")

    def received(self) -> int:
        """How far a standby has received the log of its primary, in bytes."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            row = connection.execute("select pg_last_wal_receive_lsn() - '0/0'").fetchone()
        assert row is not None
        return int(row[0])

    def promote(self) -> None:
        """Make a standby the primary, on a new timeline."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("select pg_promote(true)")

    def freeze(self) -> None:
        """Stop every process of it, as a paused machine would."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def kill(self) -> None:
        """End every process of it at once, also frozen ones, as the loss of the machine would."""
        if self.process is not None:
            for process in self._processes():
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _processes(self) -> list[psutil.Process]:
        assert self.process is not None
        postmaster = psutil.Process(self.process.pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def _quorum(self) -> int:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            row = connection.execute("select count(*) from pg_stat_replication where sync_state = 'quorum'").fetchone()
        return 0 if row is None else int(row[0])

    def _copy(self, primary: Member) -> None:
        user = postgres_user(self.directory, Path(self.program("postgres")).parent.parent)
        source = f"{primary.url('postgres')}?application_name={self.name}"
        command = [
            self.program("pg_basebackup"),
            "-d",
            source,
            "-D",
            str(self.directory),
            "-R",
            "-c",
            "fast",
            "--no-sync",
        ]
        environment = {**os.environ, "PGAPPNAME": self.name}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **run_as(user))
        assert done.returncode == 0, done.stderr


class Cluster:
    """A migrated primary `a` with standbys `b` and `c`."""

    def __init__(self, directory: Path) -> None:
        password = new_password()
        self.a = Member(directory, "a", password)
        self.b = Member(directory, "b", password, self.a)
        self.c = Member(directory, "c", password, self.a)
        self.members = (self.a, self.b, self.c)
        self.primary = self.a

    def start(self) -> None:
        """Start and migrate the primary, then its standbys."""
        self.a.start()
        self.a.make_roles(dict.fromkeys(Role, self.a.password))
        migrations.upgrade(self.a.url())
        self.b.start()
        self.c.start()

    def fail_over(self, end: Callable[[], None]) -> Member:
        """End the primary, and promote the standby that has received most; commits wait for the other one then."""
        end()
        new, other = sorted((self.b, self.c), key=Member.received, reverse=True)
        new.set("synchronous_standby_names", f"ANY 1 (a, {other.name})")
        new.promote()
        other.follow(new)
        self.primary = new
        return new

    @property
    def url(self) -> str:
        """The address that every process uses: all members, the one that accepts writes."""
        ports = ",".join(str(member.port) for member in self.members)
        hosts = ",".join("127.0.0.1" for _ in self.members)
        parameters = f"host={hosts}&port={ports}&target_session_attrs=read-write"
        return f"postgresql://postgres:{self.a.password}@/berth?{parameters}"


@contextmanager
def running_cluster(directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A cluster for the length of the context; this environment is added to that of its standbys."""
    cluster = Cluster(directory)
    cluster.b.environment = cluster.c.environment = environment or {}
    try:
        cluster.start()
        yield cluster
    finally:
        for member in cluster.members:
            member.kill()
        # A quarter of a gigabyte, in memory: ten of them in each of four processes left no room.
        shutil.rmtree(directory, ignore_errors=True)


def pools(url: str) -> Database:
    """The pools of a process."""
    return connect_database(
        url, pool_size=2, reserve_size=1, lock_timeout_seconds=2, transaction_timeout_seconds=20, application="test",
        answer_seconds_max=2.0,
    ).for_platform()  # fmt: skip
