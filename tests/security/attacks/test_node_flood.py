"""One node floods the node listener: its certificate is bounded, and no other node goes offline.

`python -m benchmarks --only node_flood` does the same with 1,000 nodes and 2,000 slow requests, and measures dispatch.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.attacks.attacking import attacking
from benchmarks.attacks.loopback import HOSTILE_SOURCES, raise_files_max
from benchmarks.attacks.node_flood import noting_silent
from benchmarks.attacks.slow_node import NodePlan
from benchmarks.node_api.dispatch import waiting_nodes
from orchestrator.settings import Settings
from tests.security.attacks.nodes import heartbeat, node_listener
from tests.security.listener import received_until_closed
from tests.support.waiting import wait_for

POLL = b"GET /node/v1/tasks/wait?timeout_seconds=60 HTTP/1.1\r\nhost: here\r\n\r\n"
SLOW = b"POST /node/v1/heartbeat HTTP/1.1\r\nhost: here\r\ncontent-length: 1000\r\nexpect: 100-continue\r\n\r\n{"


# `make test` has a flood of twice what a certificate may have, beside 15 nodes; beside 100 it takes 20 seconds of a processor.
@pytest.mark.parametrize(
    ("quiet_nodes", "slow_requests", "tasks"), [(15, 150, 8), pytest.param(100, 300, 50, marks=pytest.mark.full)]
)
def test_no_node_goes_offline_beside_one_that_floods(
    database_url: str, tmp_path: Path, quiet_nodes: int, slow_requests: int, tasks: int
) -> None:
    raise_files_max(8 * slow_requests)
    with node_listener(database_url, tmp_path, quiet_nodes + 1, {}) as listener:
        hostile, *quiet = listener.nodes
        ca = str(listener.authority.ca_certificate)
        plan: dict[str, Any] = {
            "port": listener.port, "ca": ca, "nodes": quiet, "tasks": 2 * tasks, "heartbeat_seconds": 2.0,
        }  # fmt: skip
        flood = NodePlan(
            listener.port, slow_requests, HOSTILE_SOURCES[0], ca, hostile["certificate"], hostile["key"], 240.0
        )
        with waiting_nodes([listener.metrics_port], plan) as nodes:
            first = nodes.queue(database_url, tasks)
            with attacking("benchmarks.attacks.slow_node", flood) as attack:
                with noting_silent(database_url, hostile["node"]) as silent:
                    second = nodes.queue(database_url, tasks)
                    assert len(nodes.times(first, second)) == 2 * tasks, "every task arrived"
                assert attack.runs, "the flood lasts as long as the tasks"
    assert silent.nodes == set()
    assert attack.report["opened"] >= 64, "as many as a certificate may have"
    assert attack.report["503"] >= 1, "connections of the certificate are bounded"
    assert "500" not in attack.report


def test_the_connections_of_a_certificate_are_bounded(database_url: str, tmp_path: Path) -> None:
    with node_listener(database_url, tmp_path, 2, {"BERTH_NODE_CONNECTIONS_MAX": "3"}) as listener, ExitStack() as held:
        connections = [held.enter_context(listener.connect(0)) for _ in range(3)]
        assert [heartbeat(connection) for connection in connections] == [b"200"] * 3
        with listener.connect(0) as refused:
            assert received_until_closed(refused).startswith(b"HTTP/1.1 503 ")
        with listener.connect(1) as other:
            assert heartbeat(other) == b"200"
        connections[0].close()

        def is_served() -> bool:
            with listener.connect(0) as again:
                return heartbeat(again) == b"200"

        wait_for(is_served, "the connection that ended to be forgotten")


def test_long_polls_are_no_requests_in_flight(database_url: str, tmp_path: Path) -> None:
    with (
        node_listener(database_url, tmp_path, 6, {"BERTH_REQUESTS_IN_FLIGHT_MAX": "2"}) as listener,
        ExitStack() as held,
    ):
        for node in range(5):
            held.enter_context(connection := listener.connect(node)).sendall(POLL)
            wait_for(lambda node=node: listener.waiting() == node + 1, "the node to wait")  # type: ignore[misc]
        with listener.connect(5) as other:
            assert heartbeat(other) == b"200"
        assert connection.version() == "TLSv1.3"


def test_a_certificate_beyond_its_rate_or_requests_in_flight_is_disconnected(database_url: str, tmp_path: Path) -> None:
    settings = {"BERTH_NODE_IN_FLIGHT_MAX": "2", "BERTH_NODE_REQUESTS_PER_SECOND_MAX": "1"}
    with node_listener(database_url, tmp_path, 3, settings) as listener, ExitStack() as held:
        for _ in range(2):
            connection = held.enter_context(listener.connect(0))
            connection.sendall(SLOW)
            assert connection.recv(100).startswith(b"HTTP/1.1 100 "), "it is admitted, and its body is awaited"
        with listener.connect(0) as third:
            third.sendall(SLOW)
            refusal = received_until_closed(third)
            assert refusal.startswith(b"HTTP/1.1 429 ")
            assert b"concurrency_limited" in refusal
        with listener.connect(1) as hasty:
            while (status := heartbeat(hasty)) == b"200":
                pass
            assert status == b"429"
            assert received_until_closed(hasty) == b""
        with listener.connect(2) as other:
            assert heartbeat(other) == b"200"


@pytest.mark.full
def test_half_a_handshake_with_the_node_listener_is_bounded(database_url: str, tmp_path: Path) -> None:
    settings = {"BERTH_NODE_CONNECTIONS_PER_SOURCE_MAX": "5"}
    with node_listener(database_url, tmp_path, 1, settings) as listener, ExitStack() as held:
        half_open = [held.enter_context(listener.plain()) for _ in range(5)]
        with listener.plain() as refused:
            assert received_until_closed(refused) == b""
        with listener.connect(0) as node:
            assert heartbeat(node) == b"200", "another address"
        for connection in half_open:
            assert received_until_closed(connection) == b"", "a handshake has 5 s"
    assert Settings(database_url="postgresql://nowhere").node_connections_per_source_max > 0
