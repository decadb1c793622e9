"""A whole stack, as a person runs it: real servers, every process, agents on a pretended fleet."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import psycopg
import pytest
from psycopg.types.json import Jsonb

from berth.client import Allocation, Client, CreatedAllocation
from berth.local.options import StackOptions
from berth.local.servers import LocalServer
from berth.local.stack import Stack
from orchestrator.verification.all_checks import run_checks
from tests.metrics_ports import get
from tests.support.waiting import WAIT_SECONDS_MAX
from tests.whole.collector import Collector, collecting

WORKER = {
    "BERTH_SWEEP_SECONDS": "1", "BERTH_CENSUS_SECONDS": "1", "BERTH_WORKER_POSITION_SECONDS": "0.3",
    "BERTH_WORKER_STICKY_SECONDS": "1", "BERTH_WORKER_STEP_SECONDS": "2", "BERTH_WORKER_ACK_WAIT_SECONDS": "3",
}  # fmt: skip
"""Short pauses, so that what is waited for comes soon; deadlines are those of production."""


NODE_API = {"BERTH_TASK_DISPATCH_TICK_SECONDS": "0.05"}
"""A tick of production takes a tenth of a processor from the tests, however few nodes wait."""


@dataclass(frozen=True)
class Tenant:
    """A tenant with its own API key and SSH key."""

    client: Client
    id: uuid.UUID
    api_key: str
    api_key_id: uuid.UUID
    private_key: asyncssh.SSHKey
    ssh_key_id: uuid.UUID

    def create(
        self, *, gpus: int = 1, sku: str = "h100.slice", region: str = "eu-1", labels: dict[str, str] | None = None
    ) -> CreatedAllocation:
        """Ask for GPUs."""
        return self.client.create_allocation(
            sku=sku, gpus=gpus, region=region, ssh_key_ids=[self.ssh_key_id], labels=labels
        )

    def wait(self, allocation: CreatedAllocation | Allocation, *states: str) -> Allocation:
        """The allocation once it is in one of `states`."""
        return self.client.wait_for(allocation.allocation_id, set(states), WAIT_SECONDS_MAX)

    def phases(self, allocation: CreatedAllocation | Allocation) -> list[str]:
        """The timeline's states and phases, in order."""
        entries = self.client.iterate_timeline(allocation.allocation_id)
        return [str(entry.to if entry.kind == "transition" else entry.phase) for entry in entries]


class Whole:
    """The stack under test, and the means to hurt it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.admin = stack.admin()

    def tenant(self) -> Tenant:
        """A new tenant."""
        made = self.admin.create_tenant(name=f"tenant {uuid.uuid4()}")
        key = self.admin.create_api_key(name="test", role="tenant", tenant_id=made.id)
        private = asyncssh.generate_private_key("ssh-ed25519")
        client = Client(self.stack.endpoints.api_url, key.key)
        ssh_key = client.add_ssh_key(name="test", public_key=private.export_public_key().decode().strip())
        return Tenant(client, made.id, key.key, key.id, private, ssh_key.id)

    def kill(self, name: str) -> None:
        """SIGKILL a process of ours."""
        (found,) = [child for child in self.stack._children if child.name == name]
        assert found.process is not None
        found.process.kill()
        found.process.wait()

    def start(self, *names: str) -> None:
        """Start killed processes again, all at once, and wait until they are ready."""
        killed = [child for name in names for child in self.stack._children if child.name == name]
        assert len(killed) == len(names)
        for child in killed:
            child.spawn()
        for child in killed:
            child.wait_ready()

    def server(self, name: str) -> LocalServer:
        """One of the servers."""
        (found,) = [server for server in self.stack._servers if server.name == name]
        return found

    def set_faults(self, node_id: uuid.UUID, faults: dict[str, str]) -> None:
        """Flip the sandbox driver's documented switches for one node (docs/reference/sandbox-driver.md)."""
        with psycopg.connect(self.stack.endpoints.database_url) as connection:
            connection.execute("update nodes set faults = %s where id = %s", (Jsonb(faults), node_id))

    def waiting_events(self) -> int:
        """How many events have no place in the log yet."""
        with psycopg.connect(self.stack.endpoints.database_url) as connection:
            row = connection.execute("select count(*) from outbox").fetchone()
            assert row is not None
            return int(row[0])

    def gauge(self, series: str) -> float:
        """What the worker's metrics say now; 0 for a series that is not there."""
        (worker,) = [child for child in self.stack._children if child.name == "worker"]
        _, text = get(worker.plan.metrics_port, "/metrics")
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(series))

    def violations(self) -> list[str]:
        """What `berth verify` finds, once the outbox is empty."""
        return [str(v) for v in run_checks(self.stack.endpoints.database_url) if not v.kept]


def logs_in(allocation: Allocation, key: asyncssh.SSHKey, command: str) -> str:
    """The output of a command over SSH. Raises `asyncssh.PermissionDenied` if the key is not let in."""

    async def run() -> str:
        assert allocation.connection is not None
        where = allocation.connection
        host = f"[{where.host}]:{where.port} {where.host_key}"
        async with asyncssh.connect(
            where.host, where.port, username=where.user, client_keys=[key], config=None, agent_path=None,
            known_hosts=asyncssh.import_known_hosts(host + "\n"),
        ) as session:  # fmt: skip
            return str((await session.run(command, check=True)).stdout)

    return asyncio.run(run())


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    """Where the stack's processes send their traces."""
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="package")
def whole(server_directory: Path, collector: Collector) -> Iterator[Whole]:
    """Three nodes: a slice node in each region and a bare-metal one in eu-1. Ended with these tests: it is never idle."""
    traced = {"BERTH_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    environment = {"api": traced, "node-api": {**traced, **NODE_API}, "worker": {**traced, **WORKER}}
    options = StackOptions(server_directory / "whole" / "var", agents=3, wished_port=None, environment=environment)
    with Stack(options) as stack:
        yield Whole(stack)


@pytest.fixture
def tenant(whole: Whole) -> Tenant:
    """A new tenant."""
    return whole.tenant()
