"""Holds of future windows through HTTP, in a fleet where no slot is free without an end, over bare rows of the frozen copy."""

from __future__ import annotations

import json
import random
import statistics
from datetime import UTC, datetime, timedelta

import psycopg

from benchmarks.bare_rows import FrozenRows
from benchmarks.figures import Figure
from benchmarks.load import Outcome, drive_given
from benchmarks.reserving import HOLDER
from benchmarks.running import bench
from benchmarks.seeding import REGIONS, SLICE_MODELS, BenchTenant, empty_fleet

NODES = 2_000
HOLDS = 2_400
BARE_PLACEMENTS = 9_600
CLIENTS = (1, 64, 200)
RATIO_MIN = 0.3
P99_MS_MAX = 600.0
DAYS = 30

# One booked window of 12 to 36 hours per slot, within the next month.
_BOOK = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, fence)
select s.node_id, gen_random_uuid(), 'reservation', gen_random_uuid(), int8multirange(int8range(s.unit, s.unit + 1)),
       tstzrange(w.begins, w.begins + interval '12 hours' + random() * interval '1 day'), nextval('fences')
from slots s cross join lateral (select now() + (0.04 + random() * (%(days)s + s.unit * 0)) * interval '1 day' as begins) w;
select refresh_node_fit(id) from nodes;
"""


def run(quick: bool) -> list[Figure]:
    """Rounds alternate between the bare rows and the holds; medians are compared."""
    rounds, share = (1, 4) if quick else (3, 1)
    bare: list[float] = []
    found: dict[int, list[Outcome]] = {clients: [] for clients in CLIENTS}
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        rows = FrozenRows(servers.postgres, NODES)
        endpoints = servers.endpoints(url)
        servers.api(endpoints)
        for _ in range(rounds):
            bare.append(rows.per_second(BARE_PLACEMENTS // share))
            for clients, outcomes in found.items():
                _empty(url)
                _book(url)
                holds = HOLDS // share if clients > 1 else HOLDS // share // 8
                outcomes.append(drive_given(endpoints.public_port, clients, _make_holds(holds, tenants), {"201"}))
    ceiling = statistics.median(bare)
    p99_ms = statistics.median(outcome.p99_ms for outcome in found[200])
    return [
        *(_figure(clients, outcomes, ceiling) for clients, outcomes in found.items()),
        Figure("window_holds_p99_200_clients", p99_ms, "ms", P99_MS_MAX),
    ]


def _figure(clients: int, outcomes: list[Outcome], ceiling: float) -> Figure:
    middle = sorted(outcomes, key=lambda outcome: outcome.per_second)[len(outcomes) // 2]
    return Figure(
        f"window_holds_{clients}_clients", middle.per_second / ceiling, "ratio", RATIO_MIN if clients == 64 else None,
        at_least=True, over=f"over {ceiling:,.0f} bare rows/s:", note=middle.note(),
    )  # fmt: skip


def _make_holds(count: int, tenants: list[BenchTenant]) -> list[list[str]]:
    """A GPU each, for one to four hours of the next month."""
    made, now = [], datetime.now(UTC)
    for number in range(count):
        begins = now + timedelta(hours=1 + random.random() * 24 * DAYS)
        body = {
            "sku": f"{random.choice(SLICE_MODELS).lower()}.slice",
            "gpus": 1,
            "region": random.choice(REGIONS),
            "holder_id": HOLDER,
            "starts_at": begins.isoformat(),
            "ends_at": (begins + timedelta(hours=random.randint(1, 4))).isoformat(),
            "ttl_seconds": 3_600,
        }
        made.append(["/api/v1/reservations", json.dumps(body), tenants[number % len(tenants)].api_key])
    return made


def _empty(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate reservations")
    empty_fleet(url)


def _book(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        with psycopg.ClientCursor(connection) as cursor:
            cursor.execute(_BOOK.encode(), {"days": DAYS})
        connection.execute("vacuum (analyze) claims, nodes")
