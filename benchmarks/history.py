"""Creates, lists and `berth verify` with a year of ended allocations in the tables, creates against the same without any.

Two fleets of one server, one with the history that `benchmarks/verify.py` seeds, each behind its own API process; rounds
alternate and medians are compared. BERTH_BENCH_HISTORY sets another number of allocations. `verify` is divided by each
100,000 allocations. `python -m benchmarks.history` prints the plans of the lists with `--plans`, and with `--each` the seconds of
each check.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

import httpx
import psycopg

from benchmarks.figures import Figure, percentile
from benchmarks.load import drive
from benchmarks.running import Bench, bench
from benchmarks.seeding import BenchTenant
from benchmarks.verify import seed_history, time_checks
from berth.cli.deployment.admin_key import create_admin_key
from orchestrator.verification import Bounds

HISTORY = 3_000_000
NODES = 2_000
CREATES = 3_000
CLIENTS = 64
LISTS = 100
RATIO_MIN = 0.8
LIST_MS_MAX = 100.0
VERIFY_SECONDS_MAX = 6.0
"""Of each 100,000 allocations (DESIGN §10)."""

# What the creates of a round left is taken away: in both fleets alike.
_CLEAR = (
    """delete from allocation_timeline t using allocations a
       where a.id = t.allocation_id and a.state not in ('released', 'failed')""",
    "delete from allocations where state not in ('released', 'failed')",
    "delete from claims where closed_at is null",
    "delete from operations where created_at > %s",
    "truncate outbox",
    """update nodes set free_mask = (1::bigint << slot_count) - 1, fit_class = half_slots * 64 + slot_count - half_slots
       where free_mask <> (1::bigint << slot_count) - 1""",
    "update tenant_quotas set gpus_used = 0",
    "vacuum (analyze) nodes, tenant_quotas, claims, operations, outbox, allocations",
    "checkpoint",
)
_TENANT_LIST = """
explain (analyze, buffers) select id from allocations a
where (a.tenant_id, a.id) > (%(tenant)s, %(after)s) and a.tenant_id <= %(tenant)s
  and a.id > '00000000-0000-0000-0000-000000000000' order by a.tenant_id, a.id limit 100
"""


class _Side:
    """A fleet, and the rates of its creates."""

    def __init__(self, servers: Bench, name: str, history: int) -> None:
        self.url, self.tenants = servers.fleet(NODES, name)
        self.admin_key = create_admin_key(self.url, "bench")
        self.seeding_seconds = 0.0
        if history:
            began = time.perf_counter()
            # Operations are kept for a day, so a year leaves none.
            seed_history(self.url, history, operations=False)
            self.seeding_seconds = time.perf_counter() - began
        with psycopg.connect(self.url, autocommit=True) as connection:
            # The history names the ids of its claims; creates continue behind them.
            connection.execute(
                "select setval(pg_get_serial_sequence('claims', 'id'), greatest(max(id), 1)) from claims"
            )
            (self._began,) = connection.execute("select clock_timestamp()").fetchone() or (None,)
        endpoints = servers.endpoints(self.url)
        servers.api(endpoints)
        self.port = endpoints.public_port
        self.creates: list[float] = []

    def measure(self, count: int) -> None:
        """Create so many allocations, after those of the round before are gone."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in _CLEAR:
                connection.execute(statement.encode(), (self._began,) if "%s" in statement else None)
        self.creates.append(drive([self.port], CLIENTS, count, self.tenants).per_second)

    def list_ms(self, path: str, api_key: str, pages: int) -> float:
        """Median of a page of 100 allocations, by one client that goes through the pages."""
        taken: list[float] = []
        with httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", headers={"Authorization": f"Bearer {api_key}"}
        ) as client:
            cursor: str | None = None
            for _ in range(pages):
                began = time.perf_counter()
                answer = client.get(path, params={"limit": 100} | ({"cursor": cursor} if cursor else {}))
                taken.append((time.perf_counter() - began) * 1e3)
                answer.raise_for_status()
                cursor = answer.json().get("next_cursor")
        return percentile(taken, 0.5)


def run(quick: bool) -> list[Figure]:
    """Rates with and without the history, milliseconds of a page, seconds of the checks."""
    history = int(os.environ.get("BERTH_BENCH_HISTORY", "0")) or (HISTORY // 100 if quick else HISTORY)
    rounds, count = (2, CREATES // 3) if quick else (5, CREATES)
    with bench() as servers:
        without, beside = _Side(servers, "without_history", 0), _Side(servers, "with_history", history)
        for number in range(rounds):
            for side in (without, beside) if number % 2 == 0 else (beside, without):
                side.measure(count)
        own = beside.list_ms("/api/v1/allocations", beside.tenants[0].api_key, LISTS)
        everything = beside.list_ms("/api/v1/admin/allocations", beside.admin_key, LISTS)
        if "--plans" in sys.argv:
            _print_plans(beside.url, beside.tenants[0])
        with psycopg.connect(beside.url, autocommit=True) as connection:
            for statement in _CLEAR[:-2]:
                connection.execute(statement.encode(), (beside._began,) if "%s" in statement else None)
        seconds, slowest = time_checks(beside.url, Bounds(operation_retention_seconds=1.0))
    rates = statistics.median(without.creates), statistics.median(beside.creates)
    return [
        Figure(
            f"creates_with_{history}_ended", rates[1] / rates[0], "x", None if quick else RATIO_MIN, at_least=True,
            over="creates/s without them", note=f"{rates[1]:.0f} / {rates[0]:.0f} per s",
        ),
        Figure("seeded_allocations", history / beside.seeding_seconds, "per s", None),
        Figure("tenant_list_page", own, "ms", None if quick else LIST_MS_MAX, note=f"{LISTS} pages of 100"),
        Figure("admin_list_page", everything, "ms", None if quick else LIST_MS_MAX, note=f"{LISTS} pages of 100"),
        Figure(
            "verify_each_100000", seconds / history * 100_000, "s", None if quick else VERIFY_SECONDS_MAX,
            note=f"{seconds:.1f} s in all; {slowest}",
        ),
    ]  # fmt: skip


def _print_plans(url: str, tenant: BenchTenant) -> None:
    with psycopg.connect(url) as connection:
        values = {"tenant": tenant.tenant_id, "after": "00000000-0000-0000-0000-000000000000"}
        for (line,) in connection.execute(_TENANT_LIST, values).fetchall():
            print(line)


if __name__ == "__main__":
    figures = run("--quick" in sys.argv)
    for figure in figures:
        print(figure.line())
    sys.exit(0 if all(figure.ok for figure in figures) else 1)
