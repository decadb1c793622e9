"""1,000 quiet nodes beside one that opens 2,000 slow requests: nodes that would go offline, and dispatch over dispatch alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.attacks.attacking import attacking
from benchmarks.attacks.loopback import HOSTILE_SOURCES, raise_files_max
from benchmarks.attacks.slow_node import NodePlan
from benchmarks.figures import Figure, percentile
from benchmarks.node_api.dispatch import issue_certificates, waiting_nodes
from benchmarks.running import bench
from berth.local.processes import orchestrator_plan
from berth.local.servers import free_port

QUIET_NODES = 1_000
SLOW_REQUESTS = 2_000
HEARTBEAT_SECONDS = 20.0
SILENT_SECONDS = 30.0
"""As the worker's BERTH_NODE_SILENT_SECONDS: after so long without a heartbeat a node is offline."""
TASKS = 750
TASKS_PER_SECOND = 25.0
"""So few that heartbeats, polls and tasks of 1,000 nodes alone leave the process idle most of the time."""
FLOOD_SECONDS_MAX = 240.0
RATIO_MAX = 2.0
CHECK_SECONDS = 1.0

_SILENT = """
select id::text from nodes where last_seen_at < clock_timestamp() - make_interval(secs => %s) and id <> %s
"""


def run(quick: bool) -> list[Figure]:
    """Tasks are queued at 25/s for the quiet nodes, alone and then beside the flood."""
    tasks = TASKS // 10 if quick else TASKS
    raise_files_max(8 * SLOW_REQUESTS)
    with bench() as servers:
        url, _ = servers.fleet(QUIET_NODES + 1)
        endpoints, metrics_port = servers.endpoints(url), free_port()
        servers.start(orchestrator_plan("node", endpoints, servers.authority, metrics_port))
        hostile, *quiet = issue_certificates(servers.authority, servers.directory, url)
        ca = str(servers.authority.ca_certificate)
        plan: dict[str, Any] = {
            "port": endpoints.node_port, "ca": ca, "nodes": quiet, "tasks": 2 * tasks,
            "heartbeat_seconds": HEARTBEAT_SECONDS,
        }  # fmt: skip
        flood = NodePlan(
            endpoints.node_port, SLOW_REQUESTS, HOSTILE_SOURCES[0], ca, hostile["certificate"], hostile["key"],
            FLOOD_SECONDS_MAX,
        )  # fmt: skip
        with waiting_nodes([metrics_port], plan) as nodes:
            first = nodes.queue(url, tasks, TASKS_PER_SECOND)
            with (
                attacking("benchmarks.attacks.slow_node", flood) as attack,
                noting_silent(url, hostile["node"]) as silent,
            ):
                second = nodes.queue(url, tasks, TASKS_PER_SECOND)
                times = nodes.times(first, second)
                if not attack.runs:
                    raise RuntimeError("the flood ended before the last task")
    alone, beside = percentile(times[:tasks], 0.99), percentile(times[tasks:], 0.99)
    note = f"p99 {beside:.1f} ms beside {SLOW_REQUESTS:,} slow requests of one node, {alone:.1f} ms alone"
    return [
        Figure("node_flood_offline", float(len(silent.nodes)), "nodes", 0.0, note=f"of {QUIET_NODES:,}"),
        Figure("node_flood_dispatch_p99_over_alone", beside / alone, "ratio", RATIO_MAX, note=note),
    ]


@dataclass
class Silent:
    """Nodes that were without a heartbeat for too long at some time."""

    nodes: set[str]


@contextmanager
def noting_silent(url: str, hostile: str) -> Iterator[Silent]:
    """Read which nodes are silent, each second while the block lasts."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update nodes set last_seen_at = clock_timestamp()")
    silent, ended = Silent(set()), threading.Event()

    def watch() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not ended.wait(CHECK_SECONDS):
                silent.nodes |= {node for (node,) in connection.execute(_SILENT, (SILENT_SECONDS, hostile))}

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield silent
    finally:
        ended.set()
        thread.join()
