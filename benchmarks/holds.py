"""Holds: on distinct units over the bare rows of a placement; many for one unit; confirms at a steady rate."""

from __future__ import annotations

import statistics

import psycopg

from benchmarks.bare_rows import FrozenRows
from benchmarks.figures import Figure
from benchmarks.load import Outcome, drive_given
from benchmarks.reserving import list_slots, make_confirms, make_holds
from benchmarks.running import bench
from benchmarks.seeding import empty_fleet

NODES = 2_000
CLIENTS = 64
HOLDS = 6_000
BARE_PLACEMENTS = 9_600
RATIO_MIN = 0.3
OFFERED_PER_SECOND = 500.0
OFFERED_SECONDS = 10
LOSER_P99_MS_MAX = 50.0
CONFIRM_P99_MS_MAX = 20.0


def run(quick: bool) -> list[Figure]:
    """Rounds alternate between the bare rows and the holds; medians are compared."""
    rounds, share = (1, 4) if quick else (3, 1)
    bare: list[float] = []
    distinct: list[Outcome] = []
    offered = int(OFFERED_PER_SECOND * OFFERED_SECONDS) // share
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        rows = FrozenRows(servers.postgres, NODES)
        endpoints = servers.endpoints(url)
        servers.api(endpoints)
        port = endpoints.public_port
        units = list_slots(url)
        for _ in range(rounds):
            bare.append(rows.per_second(BARE_PLACEMENTS // share))
            _clear(url)
            distinct.append(drive_given(port, CLIENTS, make_holds(units[: HOLDS // share], tenants, 3_600), {"201"}))
        _clear(url)
        before = _deadlocks(url)
        # A hold of a second: the unit changes hands while all clients request it.
        hot = drive_given(
            port, CLIENTS, make_holds([units[0]] * offered, tenants, 1), {"201", "409"},
            per_second=OFFERED_PER_SECOND, judged="409",
        )  # fmt: skip
        deadlocks = _deadlocks(url) - before
        _clear(url)
        drive_given(port, CLIENTS, make_holds(units[:offered], tenants, 3_600), {"201"})
        confirms = drive_given(port, CLIENTS, make_confirms(url, tenants), {"200"}, per_second=OFFERED_PER_SECOND)
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
