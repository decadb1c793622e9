"""Runs relay and worker as processes over real servers; nodes are simulated by calling the command of their reports."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row

from berth.local.servers import LocalNats, free_port
from migrations.roles import Role
from node_agent.protocol import ResultReport
from orchestrator.operations.execution import Context, Limits
from tests.allocations.driving import CONNECTION, PROVISIONED, WIPED, completed, release, report, run_with
from tests.allocations.seeding import Seeded, connect, make_context, write_signing_key, write_symmetric_keys
from tests.databases import as_role
from tests.metrics_ports import NO_ANSWER, get
from tests.support.waiting import WAIT_SECONDS_MAX, async_wait_for, wait_for

T = TypeVar("T")

ROLES = {"outbox_relay": Role.RELAY, "worker": Role.WORKER}

Answering = Callable[[dict[str, Any]], ResultReport | None]


class Processes:
    """Relay and workers of one test, on its own database and NATS."""

    def __init__(self, url: str, nats: LocalNats, temporal_address: str, directory: Path) -> None:
        self.url = url
        self.nats = nats
        self.nats_url = nats.url
        self.temporal_address = temporal_address
        self.directory = directory
        self.task_queue = f"q-{uuid.uuid4().hex}"
        self.signing_key = write_signing_key(directory / "signing.pem")
        self.payload_keys = write_symmetric_keys(directory / "payload.keys")
        self.metrics_port = 0
        self._started: list[subprocess.Popen[bytes]] = []

    def start_relay(self, **settings: object) -> subprocess.Popen[bytes]:
        """`python -m outbox_relay`."""
        overrides = {f"BERTH_{name.upper()}": str(value) for name, value in settings.items()}
        return self._start("outbox_relay", {"BERTH_METRICS_PORT": str(free_port()), **overrides})

    def start_worker(self, **settings: object) -> subprocess.Popen[bytes]:
        """`python -m worker`, ready."""
        self.metrics_port = free_port()
        overrides = {f"BERTH_{name.upper()}": str(value) for name, value in settings.items()}
        worker = self._start("worker", {"BERTH_METRICS_PORT": str(self.metrics_port), **overrides})
        wait_for(lambda: worker.poll() is not None or self._ok(), "the worker to be ready")
        assert worker.poll() is None, self.log("worker")
        return worker

    def _ok(self) -> bool:
        try:
            return get(self.metrics_port, "/ok")[0] == 200
        except NO_ANSWER:
            return False

    def metric(self, name: str) -> float:
        """The sum of a metric's samples of exactly that name on the newest worker."""
        lines = get(self.metrics_port, "/metrics")[1].splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def log(self, name: str) -> str:
        """The log output of the processes of that name."""
        return (self.directory / f"{name}.log").read_text()

    def _start(self, module: str, settings: dict[str, str]) -> subprocess.Popen[bytes]:
        environment = {**self.environment(), "BERTH_DATABASE_URL": as_role(self.url, ROLES[module]), **settings}
        with (self.directory / f"{module}.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, "-m", module], env=environment, stdout=log, stderr=log)
        self._started.append(process)
        return process

    def environment(self) -> dict[str, str]:
        """The environment of this test's processes, with short waits so that they recover quickly."""
        return {
            **os.environ,
            "BERTH_DATABASE_URL": as_role(self.url, Role.WORKER),
            "BERTH_NATS_URL": self.nats_url,
            "BERTH_TEMPORAL_ADDRESS": self.temporal_address,
            "BERTH_TEMPORAL_PAYLOAD_KEY_FILE": str(self.payload_keys),
            "BERTH_TASK_SIGNING_KEY_FILE": str(self.signing_key),
            "BERTH_WORKER_TASK_QUEUE": self.task_queue,
            "BERTH_WORKER_STICKY_SECONDS": "1",
            "BERTH_WORKER_STEP_SECONDS": "2",
            "BERTH_WORKER_PULL_HEARTBEAT_SECONDS": "0.5",
            "BERTH_WORKER_ACK_WAIT_SECONDS": "3",
            "BERTH_WORKER_POSITION_SECONDS": "0.3",
            "BERTH_NODE_SILENT_SECONDS": "3600",
        }

    def stop(self) -> None:
        """End every process that still runs, workers first."""
        for process in reversed(self._started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._started:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def answer_well(task: dict[str, Any]) -> ResultReport | None:
    """The successful report of a node that executes a task instantly."""
    if task["type"].removeprefix("allocation.") in ("reboot", "stop", "start", "rebuild"):
        return completed(task, {"connection": None if task["type"] == "allocation.stop" else CONNECTION})
    return completed(task, WIPED if "release" in task["type"] or "deprovision" in task["type"] else PROVISIONED)


async def answer_tasks(
    context: Context, url: str, until: Callable[[psycopg.AsyncConnection[Any]], Awaitable[bool]], answering: Answering
) -> None:
    """Simulate all nodes: report every queued task with `answering` (None: no report) until `until` holds."""
    reported: set[uuid.UUID] = set()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:

        async def reached() -> bool:
            if await until(connection):
                return True
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute("select * from node_tasks where state = 'queued' order by queued_at limit 64")
            tasks = [task for task in await cursor.fetchall() if task["id"] not in reported]
            reports = [(task, answering(task)) for task in tasks]
            reported.update(task["id"] for task, _ in reports)
            await asyncio.gather(*(report(context, task, of) for task, of in reports if of is not None))
            return False

        await async_wait_for(reached, "the allocations to reach their states", WAIT_SECONDS_MAX * 3)


_STATES = """
select a.id, a.state, c.closed_at is not null from allocations a join claims c on c.id = a.claim_id where a.id = any(%s)
"""


def play_nodes(url: str, states: dict[uuid.UUID, str], answering: Answering = answer_well) -> None:
    """Simulate all nodes until each allocation has the given state and, if that is final, its claim is closed."""

    async def main() -> None:
        context = make_context(url, limits=Limits())

        async def reached(connection: psycopg.AsyncConnection[Any]) -> bool:
            found = await connection.execute(_STATES, (list(states),))
            rows = await found.fetchall()
            settled = all(closed or state not in ("released", "failed") for _, state, closed in rows)
            return settled and {row[0]: row[1] for row in rows} == states

        try:
            await answer_tasks(context, url, reached, answering)
        finally:
            await context.database.close()

    asyncio.run(main())


def release_all(url: str, seeded: Seeded, ids: Sequence[uuid.UUID]) -> None:
    """Release each allocation as its tenant."""

    async def each(context: Context) -> None:
        for allocation_id in ids:
            await release(context, seeded, allocation_id)

    run_with(url, each)


def answer_what_is_queued(url: str) -> None:
    """Simulate all nodes until no task is queued."""

    async def main() -> None:
        context = make_context(url)

        async def nothing_queued(connection: psycopg.AsyncConnection[Any]) -> bool:
            found = await connection.execute("select from node_tasks where state = 'queued' limit 1")
            return await found.fetchone() is None

        try:
            await answer_tasks(context, url, nothing_queued, answer_well)
        finally:
            await context.database.close()

    asyncio.run(main())


def state_of(url: str, allocation_id: uuid.UUID) -> str:
    """The allocation's state."""
    with connect(url) as connection:
        row = connection.execute("select state from allocations where id = %s", (allocation_id,)).fetchone()
    assert row is not None
    return str(row[0])
