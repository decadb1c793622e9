"""A server that is gone takes a process's readiness (`/ok`) and not its liveness (`/live`); no process is started again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import migrations
from berth.local.authority import ensure_authority
from berth.local.processes import (
    ChildProcess,
    Endpoints,
    issuer_plan,
    orchestrator_plan,
    relay_plan,
    webhooks_plan,
    worker_plan,
)
from berth.local.servers import LocalNats, LocalPostgres, LocalServer, LocalTemporal, free_port, new_password
from migrations.roles import Role
from tests.databases import as_roles
from tests.metrics_ports import NO_ANSWER, get
from tests.support.waiting import wait_for

UNREADY_SECONDS_MAX = 30.0
READY_SECONDS_MAX = 60.0
NEEDS = {
    "postgres": {"api", "node-api", "issuer", "relay", "worker", "webhooks"},
    "nats": {"relay", "worker"},
    "temporal": {"worker"},
}
"""Which processes need a server. The keys are the names of the servers."""


class Running:
    """Every process of ours over servers that a test may kill."""

    def __init__(self, directory: Path) -> None:
        self.postgres = LocalPostgres(directory / "postgres", free_port(), new_password(), {"fsync": "off"})
        nats = LocalNats(directory / "nats", free_port(), free_port())
        temporal = LocalTemporal(directory / "temporal", free_port(), free_port())
        self.servers: dict[str, LocalServer] = {"postgres": self.postgres, "nats": nats, "temporal": temporal}
        self.directory = directory
        self.nats, self.temporal = nats, temporal
        self.processes: dict[str, ChildProcess] = {}
        self.public_url = ""

    def start(self) -> None:
        """Servers first, then every process until it is ready."""
        for server in self.servers.values():
            server.start()
        self.postgres.make_roles(dict.fromkeys(Role, self.postgres.password))
        url = self.postgres.url()
        migrations.upgrade(url)
        endpoints = Endpoints(url, self.nats.url, self.temporal.address, free_port(), free_port(), as_roles(url))
        self.public_url = endpoints.api_url
        files = ensure_authority(self.directory, "berth.local")
        plans = (
            orchestrator_plan("public", endpoints, files, free_port()),
            orchestrator_plan("node", endpoints, files, free_port()),
            issuer_plan(endpoints, files, free_port()),
            relay_plan(endpoints, free_port()),
            worker_plan(endpoints, files, free_port()),
            webhooks_plan(endpoints, files, free_port()),
        )
        for plan in plans:
            process = self.processes[plan.name] = ChildProcess(plan, self.directory / f"{plan.name}.log")
            process.spawn()
        for process in self.processes.values():
            process.wait_ready()

    def stop(self) -> None:
        """End everything."""
        for process in self.processes.values():
            process.kill()
        for server in reversed(self.servers.values()):
            server.stop()

    def status(self, name: str, path: str) -> int:
        """The status of a path on the metrics port of a process; 0 if it does not answer."""
        try:
            return get(self.processes[name].plan.metrics_port, path)[0]
        except NO_ANSWER:
            return 0

    def statuses(self, path: str) -> dict[str, int]:
        """The status of every process."""
        return {name: self.status(name, path) for name in self.processes}

    def pids(self) -> dict[str, int]:
        """The process ids of those that run."""
        return {name: one.process.pid for name, one in self.processes.items() if one.process and one.runs()}


@pytest.fixture(scope="module")
def running(server_directory: Path) -> Iterator[Running]:
    directory = server_directory / "liveness"
    directory.mkdir()
    found = Running(directory)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.mark.parametrize("gone", NEEDS)
def test_a_server_that_is_gone_makes_unready_what_needs_it_and_kills_nothing(running: Running, gone: str) -> None:
    before = running.pids()
    assert before.keys() == running.processes.keys() == NEEDS["postgres"]
    running.servers[gone].kill()
    try:
        for name in NEEDS[gone]:
            wait_for(lambda name=name: running.status(name, "/ok") == 503, f"{name} unready", UNREADY_SECONDS_MAX)  # type: ignore[misc]
        assert running.statuses("/ok") == {name: 503 if name in NEEDS[gone] else 200 for name in before}
        assert running.statuses("/live") == dict.fromkeys(before, 200)
        with httpx.Client(base_url=running.public_url) as http:
            assert http.get("/live").text == "live", "the public listener, without a credential"
    finally:
        running.servers[gone].start()
    for name in before:
        wait_for(lambda name=name: running.status(name, "/ok") == 200, f"{name} ready again", READY_SECONDS_MAX)  # type: ignore[misc]
    assert running.pids() == before, "no process was started again"


def test_a_worker_names_the_servers_that_it_does_not_reach(running: Running) -> None:
    port = running.processes["worker"].plan.metrics_port

    def unreachable() -> list[str]:
        found: list[str] = json.loads(get(port, "/ok")[1]).get("unreachable", [])
        return found

    assert unreachable() == []
    running.servers["temporal"].kill()
    try:
        wait_for(lambda: unreachable() == ["temporal"], "Temporal to be named", UNREADY_SECONDS_MAX)
    finally:
        running.servers["temporal"].start()
    wait_for(lambda: unreachable() == [], "Temporal to be reached again", READY_SECONDS_MAX)
