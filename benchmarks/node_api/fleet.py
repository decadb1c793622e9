"""10,000 nodes with TLS, heartbeats and inventories at two node API processes: dispatch, memory, and a restart of both."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil
import psycopg

from benchmarks.attacks.loopback import raise_files_max
from benchmarks.figures import Figure, percentile
from benchmarks.node_api.dispatch import (
    MANY_NODES,
    MANY_P99_MS_MAX,
    TASKS_PER_SECOND,
    issue_certificates,
    page_of,
    waiting_nodes,
)
from benchmarks.running import bench, memory_megabytes
from berth.local.processes import ChildProcess, orchestrator_plan
from berth.local.servers import free_port

PROCESSES = 2
HEARTBEAT_SECONDS = 120.0
"""As `BERTH_AGENT_HEARTBEAT_SECONDS` of such a fleet: once a minute takes all of two cores, load generator included."""
TASKS = 3_000
TASKS_AFTER_RESTART = 300
BYTES_PER_NODE_MAX = 60_000.0
RECONNECTED_SECONDS_MAX = 60.0
FILES_PER_NODE = 2
_HEARD_OF = """
update nodes set driver = 'sandbox', agent_version = 'bench', last_seen_at = clock_timestamp(), held_allocations = '[]',
    inventory = '[]', inventory_after = clock_timestamp()
"""
"""A fleet that has sent heartbeats before: only an agent that is new, or was offline, sends one that changes something."""


def run(quick: bool) -> list[Figure]:
    """Tasks at 100/s while all nodes send heartbeats; then both processes are killed and start again at once."""
    fleet, share = (MANY_NODES // 10, 10) if quick else (MANY_NODES, 1)
    first, second = TASKS // share, TASKS_AFTER_RESTART // share
    raise_files_max(FILES_PER_NODE * fleet + 1_000)
    with bench() as servers:
        url, _ = servers.fleet(fleet)
        with psycopg.connect(url) as connection:
            connection.execute(_HEARD_OF)
        endpoints = [servers.endpoints(url) for _ in range(PROCESSES)]
        ports = [free_port() for _ in endpoints]
        listeners = [
            servers.start(orchestrator_plan("node", at, servers.authority, port))
            for at, port in zip(endpoints, ports, strict=True)
        ]
        identities: list[dict[str, Any]] = [
            {**identity, "port": endpoints[number % PROCESSES].node_port}
            for number, identity in enumerate(issue_certificates(servers.authority, servers.directory, url))
        ]
        plan: dict[str, Any] = {
            "port": endpoints[0].node_port, "ca": str(servers.authority.ca_certificate), "nodes": identities,
            "tasks": first + second, "heartbeat_seconds": HEARTBEAT_SECONDS, "inventories": True, "reconnects": True,
        }  # fmt: skip
        empty = _megabytes(listeners)
        with waiting_nodes(ports, plan) as nodes:
            used, served, began = _processor_seconds(listeners), _requests(ports), time.monotonic()
            queued = nodes.queue(url, first)
            used, seconds = _processor_seconds(listeners) - used, time.monotonic() - began
            served = _requests(ports) - served
            full = _megabytes(listeners)
            reconnected, ready = _restart(listeners, lambda: nodes.wait_for_all(ports))
            reconnecting = (_processor_seconds(listeners) - ready) / fleet
            times = nodes.times(queued, nodes.queue(url, second))
    beside = f"{fleet:,} nodes at {PROCESSES} API processes"
    note = f"p50 {percentile(times[:first], 0.5):.1f} ms, {first} tasks at {TASKS_PER_SECOND:.0f}/s, {beside}"
    after = f"p50 {percentile(times[first:], 0.5):.1f} ms, {second} tasks after the restart"
    return [
        Figure("fleet_dispatch_p99", percentile(times[:first], 0.99), "ms", MANY_P99_MS_MAX, note=note),
        Figure("fleet_bytes_per_node", (full - empty) * 1e6 / fleet, "bytes", BYTES_PER_NODE_MAX),
        *_of_processors(used, served, seconds, fleet),
        Figure(
            "fleet_reconnected",
            reconnected,
            "s",
            RECONNECTED_SECONDS_MAX,
            note="SIGKILL of all API processes until 95 % wait",
        ),
        Figure(
            "fleet_processor_per_reconnected",
            reconnecting * 1e3,
            "ms",
            note="of an API process for each node, once it is ready",
        ),
        Figure("fleet_dispatch_after_restart_p99", percentile(times[first:], 0.99), "ms", note=after),
    ]


def _of_processors(used: float, served: float, seconds: float, nodes: int) -> list[Figure]:
    """Processor time `used` by all API processes in so many seconds, for `served` requests."""
    return [
        Figure(
            "fleet_processor_share",
            used / seconds / PROCESSES,
            "cores",
            note=f"of each API process, {nodes / HEARTBEAT_SECONDS:.0f} heartbeats/s",
        ),
        Figure(
            "fleet_processor_per_request",
            used / served * 1e3,
            "ms",
            note=f"of an API process, {served / seconds:.0f} requests/s",
        ),
    ]


def _restart(listeners: list[ChildProcess], wait: Callable[[], None]) -> tuple[float, float]:
    """Kill all at once and start them again; seconds until `wait` returns, and the processor time until all are ready."""
    began = time.monotonic()
    for listener in listeners:
        listener.kill()
    for listener in listeners:
        listener.spawn()
    for listener in listeners:
        listener.wait_ready()
    ready = _processor_seconds(listeners)
    wait()
    return time.monotonic() - began, ready


def _megabytes(listeners: list[ChildProcess]) -> float:
    return sum(memory_megabytes(listener) for listener in listeners)


def _requests(ports: list[int]) -> float:
    """Requests that the processes have answered."""
    lines = [
        line for port in ports for line in page_of(port).splitlines() if line.startswith("berth_api_requests_total{")
    ]
    return sum(float(line.split()[1]) for line in lines)


def _processor_seconds(listeners: list[ChildProcess]) -> float:
    """User and system time of the processes so far."""
    total = 0.0
    for listener in listeners:
        assert listener.process is not None
        times = psutil.Process(listener.process.pid).cpu_times()
        total += times.user + times.system
    return total
