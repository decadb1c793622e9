"""What keys cost: creates with a key over creates without, and duplicates answered by the gate over `GET /ok`."""

from __future__ import annotations

import statistics

from benchmarks.figures import Figure
from benchmarks.load import Kind, Outcome, drive
from benchmarks.running import bench
from benchmarks.seeding import empty_fleet

NODES = 10_000
KEY_RATIO_MAX = 1.10
DUPLICATE_RATIO_MAX = 1.30
CREATE_CLIENTS = 64
CREATES = 8_000
DUPLICATES = 3_000


def run(quick: bool) -> list[Figure]:
    """Rounds alternate between what is compared; each round's ratio is taken, and their median."""
    rounds, share = (2, 4) if quick else (5, 1)
    keyed: list[Outcome] = []
    unkeyed: list[Outcome] = []
    again: list[Outcome] = []
    ok: list[Outcome] = []
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        endpoints = servers.endpoints(url)
        servers.api(endpoints)
        ports = [endpoints.public_port]
        creates: list[tuple[list[Outcome], Kind]] = [(keyed, "new"), (unkeyed, "unkeyed")]
        repeats: list[tuple[list[Outcome], Kind]] = [(again, "again"), (ok, "ok")]
        for _ in range(rounds):
            for outcomes, kind in creates:
                empty_fleet(url)
                outcomes.append(drive(ports, CREATE_CLIENTS, CREATES // share, tenants, kind))
            empty_fleet(url)
            for outcomes, kind in repeats:
                outcomes.append(drive(ports, 1, DUPLICATES // share, tenants, kind))
            creates.reverse()
            repeats.reverse()
    return [_of_keys(keyed, unkeyed), _of_duplicates(again, ok)]


def _of_keys(keyed: list[Outcome], unkeyed: list[Outcome]) -> Figure:
    ratio = statistics.median(
        plain.per_second / with_key.per_second for with_key, plain in zip(keyed, unkeyed, strict=True)
    )
    with_key, plain = (statistics.median(o.per_second for o in outcomes) for outcomes in (keyed, unkeyed))
    return Figure(
        "create_with_key_over_without", ratio, "ratio", KEY_RATIO_MAX,
        note=f"time of a create, {CREATE_CLIENTS} clients: {with_key:,.0f}/s with, {plain:,.0f}/s without",
    )  # fmt: skip


def _of_duplicates(again: list[Outcome], ok: list[Outcome]) -> Figure:
    ratio = statistics.median(one.p50_ms / other.p50_ms for one, other in zip(again, ok, strict=True))
    one, other = (statistics.median(o.p50_ms for o in outcomes) for outcomes in (again, ok))
    return Figure(
        "duplicate_by_the_gate_over_ok", ratio, "ratio", DUPLICATE_RATIO_MAX,
        note=f"p50 of one client: {one:.2f} ms, GET /ok {other:.2f} ms",
    )  # fmt: skip
