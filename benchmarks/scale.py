"""Creates over 50,000 nodes against creates over 2,000: placement must not slow down as the fleet grows."""

from __future__ import annotations

import statistics

from benchmarks.figures import Figure
from benchmarks.load import Outcome, drive
from benchmarks.running import bench
from benchmarks.seeding import empty_fleet

SMALL, LARGE = 2_000, 50_000
CLIENTS = 64
CREATES = 8_000
RATIO_MIN = 0.8


def run(quick: bool) -> list[Figure]:
    """Rounds alternate between the fleets, each with its own API process; medians are compared."""
    found: dict[int, list[Outcome]] = {SMALL: [], LARGE: []}
    with bench() as servers:
        fleets = {}
        for nodes in found:
            url, tenants = servers.fleet(nodes)
            endpoints = servers.endpoints(url)
            servers.api(endpoints)
            fleets[nodes] = (url, tenants, endpoints.public_port)
        for _ in range(1 if quick else 5):
            for nodes, (url, tenants, port) in fleets.items():
                empty_fleet(url)
                found[nodes].append(drive([port], CLIENTS, CREATES // (4 if quick else 1), tenants))
    rates = {nodes: statistics.median(outcome.per_second for outcome in outcomes) for nodes, outcomes in found.items()}
    over = f"{rates[LARGE]:,.0f} creates/s over {LARGE:,} nodes, {rates[SMALL]:,.0f} over {SMALL:,}"
    return [
        Figure(
            "create_50000_nodes_over_2000", rates[LARGE] / rates[SMALL], "ratio", RATIO_MIN, at_least=True, over=over
        )
    ]
