"""Availability for a month over 5,000 nodes with 40,000 booked windows, and with 1,000,000 past reservations beside them.

Asked through HTTP for every SKU and region at once, for eight GPUs, which fit nowhere at first, so that every pool is swept
to its horizon. The limits: 150 ms at the median, and 1.3 times that of the first round with the past in the tables.
"""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime, timedelta

import httpx
import psycopg

from benchmarks.figures import Figure
from benchmarks.past import fill_past, vacuum_past
from benchmarks.running import bench

NODES = 5_000
WINDOWS = 40_000
PAST = 1_000_000
MS_MAX = 150.0
RATIO_MAX = 1.3
ROUNDS = 15

# Four weeks, four days or so of each booked on two slots; an endless allocation on the first two slots of every other node.
_BOOK = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)
select id, gen_random_uuid(), 'allocation', gen_random_uuid(), int8multirange(int8range(unit_base, unit_base + 2)),
       tstzrange(clock_timestamp(), null), true, clock_timestamp(), nextval('fences')
from nodes where unit_base / slot_count %% 2 = 0;
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, fence)
select n.id, gen_random_uuid(), 'reservation', gen_random_uuid(),
       int8multirange(int8range(n.unit_base + 2 + 2 * pair, n.unit_base + 4 + 2 * pair)),
       tstzrange(now() + week * interval '7 days' + random() * interval '1 day',
                 now() + week * interval '7 days' + interval '4 days' + random() * interval '3 days'),
       nextval('fences')
from nodes n, generate_series(0, 2) pair, generate_series(0, 3) week
order by random() limit %(windows)s;
select refresh_node_fit(id) from nodes;
"""


def run(quick: bool) -> list[Figure]:
    """Two figures; `quick` takes a tenth of the past."""
    past = PAST // 10 if quick else PAST
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        _book(url)
        endpoints = servers.endpoints(url)
        servers.api(endpoints)
        before = _ask(endpoints.public_port, tenants[0].api_key, ROUNDS)
        fill_past(url, past)
        vacuum_past(url)
        after = _ask(endpoints.public_port, tenants[0].api_key, ROUNDS)
    return [
        Figure("availability_month_5000_nodes", before, "ms", MS_MAX, note=f"{WINDOWS:,} windows booked"),
        Figure(
            f"availability_with_{past}_past", after / before, "ratio", RATIO_MAX, over=f"{after:.0f} ms over {before:.0f} ms"
        ),
    ]  # fmt: skip


def _book(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        with psycopg.ClientCursor(connection) as cursor:
            cursor.execute(_BOOK.encode(), {"windows": WINDOWS})
        connection.execute("vacuum (analyze) claims, nodes")


def _ask(port: int, api_key: str, rounds: int) -> float:
    """The median of a request in ms, once warm."""
    month = datetime.now(UTC) + timedelta(days=30)
    query = {"gpus": "8", "count": "64", "ends_at": month.strftime("%Y-%m-%dT%H:%M:%SZ"), "limit": "500"}
    found = []
    with httpx.Client(headers={"authorization": f"Bearer {api_key}"}, timeout=60) as client:
        for _ in range(rounds + 3):
            began = time.perf_counter()
            answer = client.get(f"http://127.0.0.1:{port}/api/v1/availability", params=query)
            found.append((time.perf_counter() - began) * 1000)
            if answer.status_code != 200 or not answer.json()["items"]:
                raise RuntimeError(f"availability was refused: {answer.text[:500]}")
    return statistics.median(found[3:])
