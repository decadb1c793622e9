"""Commits of one key each, through HTTP, over pgbench writing the same rows: in many namespaces, and all in one."""

from __future__ import annotations

import base64
import json
import os
import re
import statistics
import subprocess
from pathlib import Path

import psycopg

from benchmarks.figures import Figure
from benchmarks.load import Outcome, drive_given
from benchmarks.running import TENANTS, bench
from benchmarks.seeding import BenchTenant
from berth.local.servers import LocalPostgres

SCRIPT = Path(__file__).with_name("kv_rows.sql")
CLIENTS = 64
COMMITS = 8_000
RATIO_MIN = 0.2
VALUE = base64.b64encode(b"v" * 100).decode()
NODES = 1


def run(quick: bool) -> list[Figure]:
    """Rounds alternate between the bare rows and the commits; medians are compared."""
    rounds, share = (1, 4) if quick else (3, 1)
    figures = []
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        endpoints = servers.endpoints(url)
        servers.api(endpoints)
        for name, namespaces in (("many_namespaces", TENANTS), ("one_namespace", 1)):
            bare: list[float] = []
            commits: list[Outcome] = []
            for _ in range(rounds):
                _clear(url)
                bare.append(_bare_rows_per_second(servers.postgres, url, COMMITS // share, namespaces))
                _clear(url)
                given = _commits(tenants[:namespaces], COMMITS // share)
                commits.append(drive_given(endpoints.public_port, CLIENTS, given, {"200"}))
                _require_committed(url, len(given))
            ceiling = statistics.median(bare)
            rate = statistics.median(outcome.per_second for outcome in commits)
            p99_ms = statistics.median(outcome.p99_ms for outcome in commits)
            figures.append(
                Figure(
                    f"commits_{CLIENTS}_clients_{name}", rate / ceiling, "ratio", RATIO_MIN, at_least=True,
                    over=f"over {ceiling:,.0f} bare rows/s:", note=f"{rate:,.0f} commits/s, p99 {p99_ms:.1f} ms",
                )
            )  # fmt: skip
    return figures


def _commits(tenants: list[BenchTenant], count: int) -> list[list[str]]:
    """Each commit creates a new key, on the condition that it does not exist."""
    made = []
    for number in range(count):
        key = base64.b64encode(f"key-{number}".encode()).decode()
        body = {
            "read_version": 0,
            "preconditions": [{"type": "point_read", "key": key}],
            "operations": [{"type": "write", "key": key, "value": VALUE}],
        }
        made.append(["/v1/commit", json.dumps(body), tenants[number % len(tenants)].api_key])
    return made


def _require_committed(url: str, count: int) -> None:
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from kv_keys where value is not null").fetchone()
    if row is None or row[0] != count:
        raise RuntimeError(f"{count} commits were to write {count} keys; there are {row}")


def _bare_rows_per_second(postgres: LocalPostgres, url: str, count: int, namespaces: int) -> float:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create sequence if not exists bench_numbers minvalue 0 start 0")
        connection.execute("insert into kv_namespaces (id) select id from tenants on conflict do nothing")
    command = [
        LocalPostgres.program("pgbench"), "--no-vacuum", f"--client={CLIENTS}", "--jobs=2", "--protocol=prepared",
        f"--file={SCRIPT}", f"--define=namespaces={namespaces}", f"--transactions={count // CLIENTS}", "--host=127.0.0.1",
        f"--port={postgres.port}", "--username=postgres", url.rpartition("/")[2],
    ]  # fmt: skip
    environment = {**os.environ, "PGPASSWORD": postgres.password}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    rate = re.search(r"tps = ([0-9.]+)", done.stdout)
    if done.returncode != 0 or rate is None or "failed transactions: 0 " not in done.stdout:
        raise RuntimeError(f"pgbench: {done.stderr.strip()[-500:]}")
    return float(rate[1])


def _clear(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate kv_keys, kv_namespaces, operations, outbox")
        connection.execute("vacuum (analyze)")
        connection.execute("checkpoint")
