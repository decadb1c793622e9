"""From a task being queued to its arrival at the node, with 500 or 10,000 nodes waiting over mTLS."""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from benchmarks.figures import Figure, percentile
from benchmarks.running import bench
from berth.local.authority import Authority
from berth.local.processes import orchestrator_plan
from berth.local.secret_files import write_secret
from berth.local.servers import free_port
from orchestrator.nodes.certificates import NodeAuthority

NODES = 500
MANY_NODES = 10_000
TASKS = 2_000
TASKS_PER_SECOND = 100.0
P99_MS_MAX = 40.0
MANY_P99_MS_MAX = 200.0
WAITING_SHARE = 0.95
"""Of the nodes: the others are between two polls, or send a heartbeat."""
CERTIFICATE_SECONDS = 86_400.0
WAIT_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.5
"""Between two counts of the nodes that wait: a page of metrics takes some milliseconds of the process that is measured."""
PAYLOAD = "e" * 1_200  # as long as a real signed provision, in base64

_CERTIFICATE = """
insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)
values (%s, %s, 1, %s, %s, %s)
"""
_TASK = """
insert into node_tasks (id, node_id, node_epoch, type, fence, envelope, not_before, expires_at)
values (%s, %s, 1, 'diag.health_probe', nextval('fences'), %s, clock_timestamp() - interval '1 s',
        clock_timestamp() + interval '1 hour')
returning queued_at
"""


def run(quick: bool) -> list[Figure]:
    """The node listener with 500 nodes."""
    return [_measure(NODES, quick, "task_queued_to_dispatched_p99", P99_MS_MAX)]


def run_many(quick: bool) -> list[Figure]:
    """The node listener with 10,000 nodes."""
    return [_measure(MANY_NODES, quick, "task_queued_10000_nodes_p99", MANY_P99_MS_MAX)]


def _measure(waiting: int, quick: bool, name: str, p99_ms_max: float) -> Figure:
    tasks = 200 if quick else TASKS
    with bench() as servers:
        url, _ = servers.fleet(waiting)
        endpoints = servers.endpoints(url)
        metrics_port = free_port()
        servers.start(orchestrator_plan("node", endpoints, servers.authority, metrics_port))
        identities = issue_certificates(servers.authority, servers.directory, url)
        plan = {
            "port": endpoints.node_port, "ca": str(servers.authority.ca_certificate), "nodes": identities, "tasks": tasks,
        }  # fmt: skip
        milliseconds = dispatch_times(url, metrics_port, plan)
    note = f"p50 {percentile(milliseconds, 0.5):.1f} ms, {tasks} tasks at {TASKS_PER_SECOND:.0f}/s, {waiting} nodes waiting"
    return Figure(name, percentile(milliseconds, 0.99), "ms", p99_ms_max, note=note)


def dispatch_times(url: str, metrics_port: int, plan: dict[str, Any]) -> list[float]:
    """Insert tasks at random times for random nodes, which run as the plan says; milliseconds until each has read its task."""
    with waiting_nodes([metrics_port], plan) as nodes:
        return nodes.times(nodes.queue(url, plan["tasks"]))


@dataclass
class WaitingNodes:
    """Nodes in a separate process, which wait for the tasks of their plan."""

    process: subprocess.Popen[str]
    ids: list[str]

    def queue(self, url: str, tasks: int, per_second: float = TASKS_PER_SECOND) -> dict[str, datetime]:
        """Insert tasks at random times for random nodes; when the database says each was queued."""
        return _queue(url, self.ids, tasks, per_second)

    def wait_for_all(self, metrics_ports: Sequence[int]) -> None:
        """Return when nearly all of them wait. Raises RuntimeError if they end or take too long."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while sum(_waiting_nodes(port) for port in metrics_ports) < len(self.ids) * WAITING_SHARE:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"not all of {len(self.ids)} nodes are waiting")
            time.sleep(LOOK_SECONDS)

    def times(self, *queued: dict[str, datetime]) -> list[float]:
        """Milliseconds until each task was read, in their order; to be called once, when all tasks of the plan are queued."""
        answer, _ = self.process.communicate(timeout=WAIT_SECONDS_MAX)
        arrived: dict[str, float] = json.loads(answer)
        return [(arrived[task] - at.timestamp()) * 1_000 for each in queued for task, at in each.items()]


@contextmanager
def waiting_nodes(metrics_ports: Sequence[int], plan: dict[str, Any]) -> Iterator[WaitingNodes]:
    """Run the nodes of a plan until all its tasks have arrived; they wait when the block begins.

    `metrics_ports`: of each process that they wait at.
    """
    command = [sys.executable, "-m", "benchmarks.node_api.waiting_nodes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(plan) + "\n")
            process.stdin.flush()
            nodes = WaitingNodes(process, [identity["node"] for identity in plan["nodes"]])
            nodes.wait_for_all(metrics_ports)
            yield nodes
        finally:
            if process.poll() is None:
                process.kill()


def issue_certificates(files: Authority, parent: Path, url: str) -> list[dict[str, str]]:
    """A certificate for every node of the fleet; their files' paths. One key serves all: TLS costs the same."""
    certificate = load_pem_x509_certificate(files.ca_certificate.read_bytes())
    ca_key = load_pem_private_key(files.ca_key.read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    authority = NodeAuthority(certificate, ca_key, "berth.local", CERTIFICATE_SECONDS)
    key = ec.generate_private_key(ec.SECP256R1())
    directory = parent / "nodes"
    directory.mkdir(mode=0o700)
    key_file = directory / "key.pem"
    write_secret(key_file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
    identities = []
    with psycopg.connect(url) as connection:
        for (node,) in connection.execute("select id from nodes").fetchall():
            issued = authority.issue(key.public_key(), node)
            values = (issued.serial, node, issued.key_sha256, issued.not_before, issued.not_after)
            connection.execute(_CERTIFICATE, values)
            file: Path = directory / f"{node}.pem"
            file.write_text(issued.pem)
            identities.append({"node": str(node), "certificate": str(file), "key": str(key_file)})
    return identities


def page_of(metrics_port: int) -> str:
    """The metrics of a process. Not by httpx: a new client takes 20 ms of the processors that are measured."""
    connection = http.client.HTTPConnection("127.0.0.1", metrics_port, timeout=WAIT_SECONDS_MAX)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def _waiting_nodes(metrics_port: int) -> float:
    text = page_of(metrics_port)
    (line,) = [line for line in text.splitlines() if line.startswith("berth_api_nodes_waiting ")]
    return float(line.split()[1])


def _queue(url: str, nodes: list[str], tasks: int, per_second: float) -> dict[str, datetime]:
    """Insert tasks, at random times and for random nodes; when the database says each was queued."""
    envelope = json.dumps(
        {
            "payloadType": "application/vnd.berth.task+json",
            "payload": PAYLOAD,
            "signatures": [{"keyid": "k", "sig": "s"}],
        }
    )
    queued = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(tasks):
            time.sleep(random.expovariate(per_second))
            task = uuid.uuid4()
            row = connection.execute(_TASK, (task, random.choice(nodes), envelope)).fetchone()
            assert row is not None
            queued[str(task)] = row[0]
    return queued
