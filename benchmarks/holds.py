"""Holds: on distinct units over the bare rows of a placement; many for one unit; confirms at a steady rate."""

from __future__ import annotations

import json
import statistics

import psycopg

from benchmarks.bare_rows import bare_rows_per_second
from benchmarks.figures import Figure
from benchmarks.load import Outcome, drive_given
from benchmarks.running import bench
from benchmarks.seeding import BenchTenant, empty_fleet

NODES = 2_000
CLIENTS = 64
HOLDS = 6_000
BARE_PLACEMENTS = 9_600
RATIO_MIN = 0.3
OFFERED_PER_SECOND = 500.0
OFFERED_SECONDS = 10
LOSER_P99_MS_MAX = 50.0
CONFIRM_P99_MS_MAX = 20.0
HOLDER = "benchmark"


def run(quick: bool) -> list[Figure]:
    """Rounds alternate between the bare rows and the holds; medians are compared."""
    rounds, share = (1, 4) if quick else (3, 1)
    bare: list[float] = []
    distinct: list[Outcome] = []
    offered = int(OFFERED_PER_SECOND * OFFERED_SECONDS) // share
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        endpoints = servers.endpoints(url)
        servers.api(endpoints)
        port = endpoints.public_port
        units = _slots(url)
        for _ in range(rounds):
            _clear(url)
            bare.append(bare_rows_per_second(servers.postgres, url, BARE_PLACEMENTS // share))
            _clear(url)
            distinct.append(drive_given(port, CLIENTS, _holds(units[: HOLDS // share], tenants, 3_600), {"201"}))
        _clear(url)
        before = _deadlocks(url)
        # A hold of a second: the unit changes hands while everybody asks for it.
        hot = drive_given(
            port, CLIENTS, _holds([units[0]] * offered, tenants, 1), {"201", "409"},
            per_second=OFFERED_PER_SECOND, judged="409",
        )  # fmt: skip
        deadlocks = _deadlocks(url) - before
        _clear(url)
        drive_given(port, CLIENTS, _holds(units[:offered], tenants, 3_600), {"201"})
        confirms = drive_given(port, CLIENTS, _confirms(url, tenants), {"200"}, per_second=OFFERED_PER_SECOND)
    ceiling = statistics.median(bare)
    rate = statistics.median(outcome.per_second for outcome in distinct)
    p99_ms = statistics.median(outcome.p99_ms for outcome in distinct)
    return [
        Figure(
            "holds_64_clients_distinct_units", rate / ceiling, "ratio", RATIO_MIN, at_least=True,
            over=f"over {ceiling:,.0f} bare rows/s:", note=f"{rate:,.0f} holds/s, p99 {p99_ms:.1f} ms",
        ),
        Figure(
            "hot_unit_loser_p99", hot.p99_ms, "ms", LOSER_P99_MS_MAX,
            note=f"{OFFERED_PER_SECOND:.0f}/s offered for one unit, {hot.statuses.get('201', 0)} won",
        ),
        Figure("hot_unit_deadlocks", deadlocks, "", 0),
        Figure("confirm_p99", confirms.p99_ms, "ms", CONFIRM_P99_MS_MAX, note=f"{OFFERED_PER_SECOND:.0f}/s offered"),
    ]  # fmt: skip


def _slots(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("select 'slot:' || node_id || ':' || slot_index from slots order by random()")
        return [row[0] for row in rows]


def _holds(units: list[str], tenants: list[BenchTenant], ttl_seconds: int) -> list[list[str]]:
    return [
        [
            "/api/v1/reservations",
            json.dumps({"resources": [unit], "holder_id": HOLDER, "ttl_seconds": ttl_seconds}),
            tenants[number % len(tenants)].api_key,
        ]
        for number, unit in enumerate(units)
    ]


def _confirms(url: str, tenants: list[BenchTenant]) -> list[list[str]]:
    keys = {tenant.tenant_id: tenant.api_key for tenant in tenants}
    body = json.dumps({"holder_id": HOLDER})
    with psycopg.connect(url) as connection:
        rows = connection.execute("select id, tenant_id from reservations where state = 'hold' order by random()")
        return [[f"/api/v1/reservations/{row[0]}/confirm", body, keys[str(row[1])]] for row in rows]


def _clear(url: str) -> None:
    """Take everything back."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate reservations")
    empty_fleet(url)


def _deadlocks(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchone()
        assert row is not None
        return int(row[0])
