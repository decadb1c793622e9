"""A restore to an earlier moment with 1,000,000 ended allocations: how long until Berth serves, and what each step takes.

The commands are those of docs/how-to/restore-from-backup.md. The time begins when PostgreSQL and every process of ours but the
nodes are killed, and ends when each of 1,000 nodes has sent its inventory, so that every slot is open, and creates succeed.
An operator reads and types nothing meanwhile. NATS keeps running, and its stream has the whole log before and after. What
was created in the lost interval is exported and reported; no guest runs, so that no node has an orphan. The worker's sweeper
that opens nodes runs in this process at its interval, without the worker: the seeded history was never metered.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg
import structlog

from benchmarks.figures import Figure
from benchmarks.load import drive
from benchmarks.node_api.dispatch import issue_certificates, waiting_nodes
from benchmarks.running import Bench, bench, number, wait_for_log
from benchmarks.seeding import BenchTenant
from benchmarks.verify import seed_history
from berth.cli.deployment.restore.running import run_restore
from berth.local.processes import (
    ChildProcess,
    Endpoints,
    backup_stream_plan,
    orchestrator_plan,
    relay_plan,
)
from berth.local.servers import LocalNats, free_port, postgres_user
from orchestrator.database.transactions import connect_database
from orchestrator.nodes.inventory_queries import count_awaited_inventories
from orchestrator.operations.execution import Context, Limits
from worker.sweepers.reconciliation import InventoryReconciler

ALLOCATIONS = 1_000_000
NODES = 1_000
LOST, AFTER = 1_000, 640
"""Creates in the lost interval, and after the restore."""
CLIENTS = 64
HEARTBEAT_SECONDS = 10.0
RECONCILE_SECONDS = 15.0
"""As BERTH_RECONCILE_SECONDS of the worker."""
SERVING_SECONDS_MAX = 300.0
WAIT_SECONDS_MAX = 600.0
PAUSE_SECONDS = 0.1


@dataclass
class _Steps:
    """Seconds of each step, in order."""

    seconds: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def done(self, name: str) -> None:
        """The step that began when the one before it ended is over."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now

    def note(self) -> str:
        """For a person."""
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())


@dataclass
class _Scene:
    """PostgreSQL with a history, NATS with its log, and where backups go."""

    servers: Bench
    nats: LocalNats
    endpoints: Endpoints
    tenants: list[BenchTenant]
    backups: Path

    @property
    def url(self) -> str:
        """PostgreSQL as the owner of the schema."""
        return self.endpoints.database_url

    def berth(self, *arguments: str) -> None:
        """A command of an operator. Raises RuntimeError if it fails."""
        named = {
            "BERTH_DATABASE_URL": self.url, "BERTH_NATS_URL": self.nats.url, "BERTH_BACKUP_DATABASE_URL": self.url,
            "BERTH_BACKUP_DIR": str(self.backups), "BERTH_STATE_DIR": str(self.servers.directory / "none"),
        }  # fmt: skip
        command = [sys.executable, "-m", "berth.cli", *arguments]
        done = subprocess.run(command, env={**os.environ, **named}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"berth {' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}")

    def moment(self) -> str:
        """The database's clock, as RFC 3339."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute("select rfc3339(clock_timestamp())").fetchone()
        assert row is not None
        return str(row[0])

    def wait_for(self, query: str) -> None:
        """Return when a query returns true. Raises RuntimeError if that takes too long."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        with psycopg.connect(self.url, autocommit=True) as connection:
            while connection.execute(query.encode()).fetchone() != (True,):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"not true after {WAIT_SECONDS_MAX:.0f} s: {query}")
                time.sleep(PAUSE_SECONDS)

    def wait_streamed(self) -> None:
        """Return when the backup directory has everything that was committed before the call."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            flushed = number(connection, "select pg_current_wal_flush_lsn() - '0/0'")
        self.wait_for(
            f"select coalesce(max(restart_lsn - '0/0'), 0) >= {flushed} from pg_replication_slots where active"
        )


def run(quick: bool) -> list[Figure]:
    """One restore."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))  # a line for each node
    allocations, nodes, share = (ALLOCATIONS // 50, NODES // 2, 4) if quick else (ALLOCATIONS, NODES, 1)
    with _scene(allocations, nodes) as scene:
        steps = _restore(scene, share)
    total = sum(steps.seconds.values())
    limit = None if quick else SERVING_SECONDS_MAX
    return [Figure(f"restore_of_{allocations}_until_serving", total, "s", limit, note=steps.note())]


@contextmanager
def _scene(allocations: int, nodes: int) -> Iterator[_Scene]:
    """The history is in the log as well as on NATS, and WAL is streamed from before the base backup on."""
    with bench() as servers:
        nats = servers.nats()
        url, tenants = servers.fleet(nodes)
        seed_history(url, allocations)
        with psycopg.connect(url, autocommit=True) as connection:
            # The history names the ids of its claims; creates continue behind them.
            connection.execute("select setval(pg_get_serial_sequence('claims', 'id'), max(id)) from claims")
        endpoints = replace(servers.endpoints(url, nats.url), backup_database_url=url)
        scene = _Scene(servers, nats, endpoints, tenants, servers.directory / "backups")
        scene.backups.mkdir(mode=0o700)
        scene.berth("events", "rebuild")
        scene.berth("backup", "run")
        servers.start(backup_stream_plan(endpoints, scene.backups, free_port()))
        yield scene


def _restore(scene: _Scene, share: int) -> _Steps:
    """Creates that are lost; then the restore, while the nodes go on trying to connect.

    `share`: divides the numbers of creates.
    """
    identities = issue_certificates(scene.servers.authority, scene.servers.directory, scene.url)
    plan = {
        "port": scene.endpoints.node_port, "ca": str(scene.servers.authority.ca_certificate), "nodes": identities, "tasks": 1,
        "heartbeat_seconds": HEARTBEAT_SECONDS, "inventories": True, "reconnects": True,
    }  # fmt: skip
    node_metrics = free_port()
    with ExitStack() as lost:
        children = _processes(scene, node_metrics)
        nodes = lost.enter_context(waiting_nodes([node_metrics], plan))
        moment = scene.moment()
        drive([scene.endpoints.public_port], CLIENTS, LOST // share, scene.tenants)
        with psycopg.connect(scene.url, autocommit=True) as connection:
            wait_for_log(connection)
        scene.wait_streamed()
        steps = _Steps()
        for child in children:
            child.kill()
        scene.servers.postgres.kill()
        _copy_and_recover(scene, moment, steps)
        _finish(scene, steps)
        _processes(scene, node_metrics)
        steps.done("start of processes")
        asyncio.run(_open_nodes(scene.url))
        steps.done("inventories")
        drive([scene.endpoints.public_port], CLIENTS, AFTER // share, scene.tenants)
        if nodes.process.poll() is not None:
            raise RuntimeError("the nodes ended before the restore did")
    return steps


def _processes(scene: _Scene, node_metrics: int) -> list[ChildProcess]:
    """The listeners and the relay, ready."""
    files = scene.servers.authority
    plans = [
        orchestrator_plan("public", scene.endpoints, files, free_port()),
        orchestrator_plan("node", scene.endpoints, files, node_metrics),
        relay_plan(scene.endpoints, free_port()),
    ]
    return [scene.servers.start(plan) for plan in plans]


async def _open_nodes(url: str) -> None:
    """Return when no inventory is awaited any more. Raises RuntimeError if that takes too long."""
    database = connect_database(
        url, pool_size=4, reserve_size=1, lock_timeout_seconds=5, transaction_timeout_seconds=20, application="bench"
    )
    context = Context(database, Limits())
    reconciler = InventoryReconciler(context, nodes_max=NODES, limit=NODES, inventories_min=2)
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while await count_awaited_inventories(context):
                await asyncio.sleep(RECONCILE_SECONDS)
                await reconciler.run()
    except TimeoutError:
        raise RuntimeError(f"nodes are awaited after {WAIT_SECONDS_MAX:.0f} s") from None
    finally:
        await database.close()


def _copy_and_recover(scene: _Scene, moment: str, steps: _Steps) -> None:
    postgres = scene.servers.postgres
    user = postgres_user(postgres.directory, Path(postgres.program("postgres")).parent.parent) or getpass.getuser()
    shutil.rmtree(postgres.directory)
    steps.done("removal of the lost database")
    scene.berth("backup", "restore", "--data", str(postgres.directory), "--at", moment, "--owner", user)
    steps.done("copy")
    postgres.start()
    scene.wait_for("select not pg_is_in_recovery()")
    steps.done("recovery")


def _finish(scene: _Scene, steps: _Steps) -> None:
    scene.berth("migrate")
    scene.berth("restore", "begin")
    steps.done("migrate, begin")
    scene.berth("restore", "export", "--to", str(scene.servers.directory / "lost-interval"))
    steps.done("export")
    scene.berth("events", "rebuild", "--accept-timeline")
    steps.done("rebuild of the stream")
    run_restore(scene.url, lambda step, said: steps.done(f"run: {step}"))
