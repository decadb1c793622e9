"""A quiet tenant's creates beside a flooding tenant, over the same creates alone.

The quiet tenant sends at a steady rate over several connections: one connection would add the wait for its own earlier requests.
"""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor

from benchmarks.figures import Figure
from benchmarks.load import Outcome, create_bodies, drive, drive_given
from benchmarks.running import bench
from benchmarks.seeding import empty_fleet

NODES = 10_000
FLOODING_CLIENTS = 64
FLOOD = 16_000
QUIET_PER_SECOND = 50.0
QUIET_CLIENTS = 8
QUIET = 250
RATIO_MAX = 2.0


def run(quick: bool) -> list[Figure]:
    """Rounds alternate between the quiet tenant alone and beside the other; medians of the p99 are compared."""
    alone: list[Outcome] = []
    beside: list[Outcome] = []
    share = 4 if quick else 1
    with bench() as servers, ThreadPoolExecutor(1) as pool:
        url, tenants = servers.fleet(NODES)
        endpoints = servers.endpoints(url)
        servers.api(endpoints)
        port = endpoints.public_port
        quiet, flooding = tenants[:1], tenants[1:2]
        given = create_bodies(quiet[0], QUIET // share)
        for _ in range(1 if quick else 3):
            empty_fleet(url)
            alone.append(drive_given(port, QUIET_CLIENTS, given, {"201"}, per_second=QUIET_PER_SECOND))
            flood = pool.submit(drive, [port], FLOODING_CLIENTS, FLOOD // share, flooding)
            beside.append(drive_given(port, QUIET_CLIENTS, given, {"201"}, per_second=QUIET_PER_SECOND))
            flood.result()
    first, second = (statistics.median(outcome.p99_ms for outcome in outcomes) for outcomes in (alone, beside))
    note = f"p99 {second:.1f} ms beside {FLOODING_CLIENTS} clients, {first:.1f} ms alone"
    return [Figure("quiet_tenant_create_p99_over_alone", second / first, "ratio", RATIO_MAX, note=note)]
