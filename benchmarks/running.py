"""Starts what a benchmark measures: PostgreSQL with everything durable, and processes of ours as they run in production."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg

import migrations
from benchmarks.seeding import SSH_PUBLIC_KEY, BenchTenant, seed_fleet, seed_tenants
from berth.client import Client
from berth.local.authority import Authority, ensure_authority
from berth.local.processes import ChildProcess, Endpoints, ProcessPlan, orchestrator_plan
from berth.local.servers import LocalNats, LocalPostgres, free_port, new_password
from berth.local.stack import Stack
from migrations.roles import Role

TENANTS = 16
RELAY_SECONDS_MAX = 60.0


class Bench:
    """One benchmark's servers and processes; all end with the block."""

    def __init__(self, directory: Path, held: ExitStack) -> None:
        self.directory = directory
        self._held = held
        self.postgres = LocalPostgres(directory / "servers" / "postgres", free_port(), new_password())
        self.postgres.start()
        held.callback(self.postgres.stop)
        self.postgres.make_roles(dict.fromkeys(Role, self.postgres.password))
        secrets = directory / "secrets"
        secrets.mkdir(mode=0o700)
        self.authority: Authority = ensure_authority(secrets, "berth.local")
        self._children = 0

    def fleet(self, nodes: int, name: str | None = None) -> tuple[str, list[BenchTenant]]:
        """A database with a fleet of so many nodes; its URL and its tenants."""
        name = name or f"fleet_{nodes}"
        with psycopg.connect(self.postgres.url("postgres"), autocommit=True) as connection:
            connection.execute(f"create database {name}")
        url = self.postgres.url(name)
        migrations.upgrade(url)
        seed_fleet(url, nodes)
        return url, seed_tenants(url, TENANTS)

    def endpoints(self, database_url: str, nats_url: str = "", temporal_address: str = "") -> Endpoints:
        """Free ports for one set of processes over a database; each connects as its role."""
        urls = {role: database_url.replace("//postgres:", f"//{role}:", 1) for role in Role}
        return Endpoints(database_url, nats_url, temporal_address, free_port(), free_port(), urls)

    def nats(self) -> LocalNats:
        """A NATS server with JetStream."""
        server = LocalNats(self.directory / "servers" / "nats", free_port(), free_port())
        server.start()
        self._held.callback(server.stop)
        return server

    def api(self, endpoints: Endpoints) -> ChildProcess:
        """A public API process that answers."""
        return self.start(orchestrator_plan("public", endpoints, self.authority, free_port()))

    def start(self, plan: ProcessPlan) -> ChildProcess:
        """Start a process and wait until it is ready."""
        self._children += 1
        child = ChildProcess(plan, self.directory / f"{plan.name.replace(' ', '-')}-{self._children}.log")
        child.spawn()
        self._held.callback(child.wait_ended)
        self._held.callback(child.terminate)
        child.wait_ready()
        return child


@contextmanager
def bench() -> Iterator[Bench]:
    """Servers in a temporary directory, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as directory, ExitStack() as held:
        yield Bench(Path(directory), held)


@contextmanager
def tenant_of(stack: Stack) -> Iterator[tuple[Client, UUID]]:
    """A client of a new tenant of the stack, and the id of the tenant's SSH key."""
    with stack.admin() as admin:
        tenant = admin.create_tenant(name="benchmark")
        key = admin.create_api_key(name="benchmark", role="tenant", tenant_id=tenant.id)
    with Client(stack.endpoints.api_url, key.key) as client:
        yield client, client.add_ssh_key(name="benchmark", public_key=SSH_PUBLIC_KEY).id


def number(database: psycopg.Connection[Any], statement: str) -> int:
    """The single number that a statement returns."""
    row = database.execute(statement.encode()).fetchone()
    assert row is not None
    return int(row[0])


def wait_for_log(database: psycopg.Connection[Any]) -> int:
    """Return the newest version once every event has its place in the log. Raises RuntimeError if that takes too long."""
    deadline = time.monotonic() + RELAY_SECONDS_MAX
    while number(database, "select count(*) from outbox"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"events wait for the relay for {RELAY_SECONDS_MAX:.0f} s")
        time.sleep(0.1)
    return number(database, "select version from log_head")


def with_environment(plan: ProcessPlan, **variables: str) -> ProcessPlan:
    """The plan with other settings."""
    return replace(plan, environment={**plan.environment, **variables})


def memory_megabytes(child: ChildProcess) -> float:
    """Proportional set size of a process and its children, in MB of 10^6 bytes."""
    assert child.process is not None
    process = psutil.Process(child.process.pid)
    total: int = sum(member.memory_full_info().pss for member in (process, *process.children(recursive=True)))
    return total / 1e6
