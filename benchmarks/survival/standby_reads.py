"""Lists and availability with a streaming standby and without: processor time of the primary, and creates beside the reads.

Two API processes over one primary, one of them with `BERTH_READ_DATABASE_URL`. Rounds alternate. Primary, standby, both processes
and the clients share the machine, so it is the primary's processor time for each read that says what a standby takes off it.
"""

from __future__ import annotations

import http.client
import itertools
import os
import statistics
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.figures import Figure
from benchmarks.guards.row_security import database_cpu_seconds
from benchmarks.load import drive
from benchmarks.running import Bench, bench, with_environment
from benchmarks.seeding import BenchTenant
from benchmarks.survival.creating import Clients, Creating
from berth.local.processes import orchestrator_plan
from berth.local.servers import LocalPostgres, free_port, postgres_user
from berth.local.system_users import run_as
from migrations.roles import Role

NODES = 5_000
ALLOCATIONS = 4_000
READERS, CREATORS = 8, 4
SECONDS = 10.0
ROUNDS = 3
RATIO_MAX = 0.2
WAIT_SECONDS_MAX = 60.0
PATHS = ("/api/v1/allocations?limit=100", "/api/v1/availability")
SERVED = 'berth_api_replicated_reads_total{source="standby"}'


@dataclass(frozen=True)
class _Round:
    """Reads and creates per second, and the primary's processor time in seconds for each second."""

    reads: float
    creates: float
    primary: float


def run(quick: bool) -> list[Figure]:
    """One figure for the primary's processor time, one for the creates beside the reads."""
    rounds, seconds = (1, 3.0) if quick else (ROUNDS, SECONDS)
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        standby = _standby(servers)
        try:
            ports = {False: _api(servers, url, tenants[0], None), True: _api(servers, url, tenants[0], standby)}
            drive([ports[False]], 64, ALLOCATIONS, tenants)
            found: defaultdict[tuple[bool, bool], list[_Round]] = defaultdict(list)
            for number in range(rounds):
                # Each goes first as often as the other.
                for replicated in (True, False) if number % 2 else (False, True):
                    for creating in (False, True):
                        found[replicated, creating].append(
                            _measure(servers, ports[replicated], tenants, seconds, creating)
                        )
        finally:
            standby.stop()
    return [_cpu(found[True, False], found[False, False]), _creates(found[True, True], found[False, True])]


def _standby(servers: Bench) -> LocalPostgres:
    """A streaming standby of the benchmark's server."""
    primary = servers.postgres
    place = servers.directory / "servers" / "standby"
    standby = LocalPostgres(place, free_port(), primary.password)
    user = postgres_user(place, Path(standby.program("postgres")).parent.parent)
    command = [standby.program("pg_basebackup"), "-d", primary.url("postgres"), "-D", str(place), "-R", "-c", "fast"]
    subprocess.run(command, check=True, env={**os.environ}, **run_as(user))
    standby.start()
    return standby


def _api(servers: Bench, url: str, tenant: BenchTenant, standby: LocalPostgres | None) -> int:
    """The port of a public API process; with a standby it answers when that serves."""
    endpoints, metrics_port = servers.endpoints(url), free_port()
    plan = orchestrator_plan("public", endpoints, servers.authority, metrics_port)
    if standby is None:
        servers.start(plan)
        return endpoints.public_port
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    address = standby.url(str(name)).replace("//postgres:", f"//{Role.PUBLIC_API}:", 1)
    address += "?target_session_attrs=standby"
    servers.start(with_environment(plan, BERTH_READ_DATABASE_URL=address))
    connection = http.client.HTTPConnection("127.0.0.1", endpoints.public_port)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not _served(metrics_port):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the standby served nothing within {WAIT_SECONDS_MAX:.0f} s")
        _read(connection, PATHS[0], tenant.api_key)
        time.sleep(0.1)
    connection.close()
    return endpoints.public_port


def _served(metrics_port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", metrics_port)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return any(line.startswith(SERVED) and float(line.rpartition(" ")[2]) > 0 for line in lines)


def _read(connection: http.client.HTTPConnection, path: str, api_key: str) -> None:
    """A read that any standby within the bound may serve. Raises RuntimeError unless it is answered."""
    connection.request("GET", path, headers={"Authorization": f"Bearer {api_key}", "Berth-Min-Version": "0"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != http.client.OK:
        raise RuntimeError(f"{path} was answered {answer.status}: {content[:200]!r}")


class _Reading(Clients):
    """Clients that read one list after the other."""

    def __init__(self, port: int, tenants: list[BenchTenant]) -> None:
        super().__init__(port, READERS, tenants)
        self._counts = [0] * READERS

    @property
    def count(self) -> int:
        """How many reads were answered."""
        return sum(self._counts)

    def _send(self, tenant: BenchTenant, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=WAIT_SECONDS_MAX)
        for path in itertools.cycle(PATHS):
            if self._stopping.is_set():
                break
            _read(connection, path, tenant.api_key)
            self._counts[number] += 1
        connection.close()


def _measure(servers: Bench, port: int, tenants: list[BenchTenant], seconds: float, creating: bool) -> _Round:
    creators = Creating(port, CREATORS if creating else 0, tenants)
    with _Reading(port, tenants) as reading, creators:
        time.sleep(1.0)  # sessions have planned their statements
        began, reads, creates = time.monotonic(), reading.count, len(creators.acknowledged)
        used = database_cpu_seconds(servers)
        time.sleep(seconds)
        took = time.monotonic() - began
        return _Round(
            (reading.count - reads) / took,
            (len(creators.acknowledged) - creates) / took,
            (database_cpu_seconds(servers) - used) / took,
        )


def _cpu(with_standby: list[_Round], without: list[_Round]) -> Figure:
    cost, bare = (
        [of.primary / of.reads * 1e6 for of in side] for side in (with_standby, without)
    )  # fmt: skip
    rate, bare_rate = (statistics.median(of.reads for of in side) for side in (with_standby, without))
    costs = f"{statistics.median(cost):,.0f} us for each of {rate:,.0f} reads/s with it"
    bare_costs = f"{statistics.median(bare):,.0f} us for each of {bare_rate:,.0f}/s without"
    return Figure(
        "standby_reads_primary_cpu",
        statistics.median(one / other for one, other in zip(cost, bare, strict=True)),
        "ratio",
        RATIO_MAX,
        over="over the same without a standby:",
        note=f"{costs}, {bare_costs}",
    )


def _creates(with_standby: list[_Round], without: list[_Round]) -> Figure:
    ratio = statistics.median(one.creates / other.creates for one, other in zip(with_standby, without, strict=True))
    notes = [
        f"{statistics.median(of.creates for of in side):,.0f} creates/s beside {statistics.median(of.reads for of in side):,.0f}"
        f" reads/s {name}"
        for side, name in ((with_standby, "with it"), (without, "without"))
    ]
    return Figure(
        "creates_beside_standby_reads", ratio, "ratio", over="over the same without a standby:", note=", ".join(notes)
    )
