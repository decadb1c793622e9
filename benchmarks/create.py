"""Creates through HTTP: 1, 8, 64 and 500 clients, one and two API processes, against the bare rows in the same run."""

from __future__ import annotations

import statistics

from benchmarks.bare_rows import bare_rows_per_second
from benchmarks.figures import Figure
from benchmarks.load import Outcome, drive
from benchmarks.running import bench
from benchmarks.seeding import empty_fleet

NODES = 10_000
RATIO_MIN = 0.3
P99_MS_MAX = 600.0
CREATES = {1: 800, 8: 4_000, 64: 12_000, 500: 12_000}
BARE_PLACEMENTS = 19_200


def run(quick: bool) -> list[Figure]:
    """Rounds alternate between the bare rows and the creates; medians are compared."""
    rounds = 1 if quick else 3
    bare: list[float] = []
    found: dict[tuple[int, int], list[Outcome]] = {}
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        apis = [servers.endpoints(url) for _ in range(2)]
        for endpoints in apis:
            servers.api(endpoints)
        ports = [endpoints.public_port for endpoints in apis]
        for _ in range(rounds):
            empty_fleet(url)
            bare.append(bare_rows_per_second(servers.postgres, url, BARE_PLACEMENTS // (4 if quick else 1)))
            for processes in (1, 2):
                for clients, creates in CREATES.items():
                    empty_fleet(url)
                    count = creates // (4 if quick else 1)
                    outcome = drive(ports[:processes], clients, count, tenants)
                    found.setdefault((processes, clients), []).append(outcome)
    ceiling = statistics.median(bare)
    figures = [Figure("bare_rows_64_clients", ceiling, "/s")]
    for (processes, clients), outcomes in found.items():
        figures.append(_figure(processes, clients, outcomes, ceiling))
    for processes in (1, 2):
        p99_ms = statistics.median(outcome.p99_ms for outcome in found[processes, 500])
        figures.append(Figure(f"create_p99_500_clients_{processes}_api", p99_ms, "ms", P99_MS_MAX))
    return figures


def _figure(processes: int, clients: int, outcomes: list[Outcome], ceiling: float) -> Figure:
    rate = statistics.median(outcome.per_second for outcome in outcomes)
    p50_ms = statistics.median(outcome.p50_ms for outcome in outcomes)
    p99_ms = statistics.median(outcome.p99_ms for outcome in outcomes)
    note = f"{rate:,.0f} creates/s, p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms"
    name = f"create_{clients}_clients_{processes}_api"
    limit = RATIO_MIN if clients == 64 else None
    return Figure(
        name, rate / ceiling, "ratio", limit, at_least=True, over=f"over {ceiling:,.0f} bare rows/s:", note=note
    )
