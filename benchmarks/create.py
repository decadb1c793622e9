"""Creates through HTTP: 1, 8, 64 and 500 clients, one and two API processes, against the bare rows in the same run."""

from __future__ import annotations

import statistics
from collections import defaultdict

from benchmarks.bare_rows import SESSIONS, FrozenRows, bare_rows_per_second
from benchmarks.figures import Figure
from benchmarks.load import Outcome, drive
from benchmarks.running import bench
from benchmarks.seeding import empty_fleet

NODES = 10_000
RATIOS_MIN = {1: 0.4, 8: 0.5, 64: 1.0}
"""Of creates by so many clients over the bare rows of as many sessions."""
BEST_RATIO_MIN = 0.8
"""Of creates by 64 clients over the best bare rows of any number of sessions."""
P99_MS_MAX = 400.0
CREATES = {1: 800, 8: 4_000, 64: 12_000, 500: 12_000}
PROCESSES = (1, 2)


def run(quick: bool) -> list[Figure]:
    """Rounds alternate between the bare rows and the creates; medians are compared."""
    rounds, share = (1, 4) if quick else (3, 1)
    frozen: defaultdict[int, list[float]] = defaultdict(list)
    present: defaultdict[int, list[float]] = defaultdict(list)
    found: defaultdict[tuple[int, int], list[Outcome]] = defaultdict(list)
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        rows = FrozenRows(servers.postgres, NODES)
        apis = [servers.endpoints(url) for _ in PROCESSES]
        for endpoints in apis:
            servers.api(endpoints)
        ports = [endpoints.public_port for endpoints in apis]
        for _ in range(rounds):
            for sessions, placements in SESSIONS.items():
                frozen[sessions].append(rows.per_second(placements // share, sessions))
                empty_fleet(url)
                rate = bare_rows_per_second(servers.postgres, url, placements // share, sessions)
                present[sessions].append(rate)
            for processes in PROCESSES:
                for clients, creates in CREATES.items():
                    empty_fleet(url)
                    found[processes, clients].append(drive(ports[:processes], clients, creates // share, tenants))
    ceilings = {sessions: statistics.median(rates) for sessions, rates in frozen.items()}
    return [
        *(_rows(sessions, ceilings[sessions], statistics.median(present[sessions])) for sessions in SESSIONS),
        *(figure for at, outcomes in found.items() for figure in _figures(*at, outcomes, ceilings)),
    ]


def _rows(sessions: int, frozen: float, present: float) -> Figure:
    note = f"{present:,.0f}/s in the present schema, {frozen:,.0f}/s in the frozen one"
    return Figure(f"bare_rows_{sessions}_sessions", present / frozen, "ratio", note=note)


def _figures(processes: int, clients: int, outcomes: list[Outcome], ceilings: dict[int, float]) -> list[Figure]:
    rate = statistics.median(outcome.per_second for outcome in outcomes)
    p50_ms = statistics.median(outcome.p50_ms for outcome in outcomes)
    p99_ms = statistics.median(outcome.p99_ms for outcome in outcomes)
    note = f"{rate:,.0f} creates/s, p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms"
    name = f"create_{clients}_clients_{processes}_api"
    if clients not in RATIOS_MIN:
        return [Figure(f"create_p99_{clients}_clients_{processes}_api", p99_ms, "ms", P99_MS_MAX, note=note)]
    over = f"over the bare rows of {clients} sessions ({ceilings[clients]:,.0f}/s):"
    figures = [
        Figure(name, rate / ceilings[clients], "ratio", RATIOS_MIN[clients], at_least=True, over=over, note=note)
    ]
    if clients == max(RATIOS_MIN):
        best = max(ceilings.values())
        over = f"over the best bare rows ({best:,.0f}/s)"
        figures.append(Figure(f"{name}_best", rate / best, "ratio", BEST_RATIO_MIN, at_least=True, over=over))
    return figures
