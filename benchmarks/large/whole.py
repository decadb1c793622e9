"""One installation of 50,000 nodes, 400,000 slots, 10,000 tenants and 1,000,000 ended allocations, with 180,000 active ones.

Creates and holds are compared with the same on 2,000 empty nodes: rounds alternate and medians are compared. Pages of lists, a
month of availability, `berth doctor` and `berth verify` are asked once all is there. A worker runs for a minute with nothing to
do: its sweepers read everything that waits, and the share of that minute in which it sweeps is the figure. The nodes send no
heartbeats: they count as online for a day.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import httpx
import psycopg
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.figures import Figure, percentile
from benchmarks.large.in_use import seed_active, seed_more_tenants
from benchmarks.load import drive, drive_given
from benchmarks.reserving import list_slots, make_holds
from benchmarks.running import Bench, bench, with_environment
from benchmarks.seeding import BenchTenant
from benchmarks.verify import seed_history, time_checks
from berth.cli.deployment.admin_key import create_admin_key
from berth.local.processes import ChildProcess, Endpoints, relay_plan, worker_plan
from berth.local.servers import LocalNats, LocalTemporal, free_port
from orchestrator.verification import Bounds

SMALL, NODES = 2_000, 50_000
TENANTS = 10_000
HISTORY = 1_000_000
OF_EACH = 4
"""Active allocations of each node of slices, which has eight slots."""
CLIENTS = 64
CREATES, HOLDS = 4_000, 3_000
PAGES = 60
SWEEP_SECONDS = 60.0
SILENT_SECONDS = 86_400
HOLD_SECONDS = 600
RATIO_MIN = 0.8
LIST_MS_MAX = 100.0
DOCTOR_SECONDS_MAX = 10.0
SWEEP_SHARE_MAX = 0.25
VERIFY_SECONDS_MAX = 6.0
"""Of each 100,000 allocations (DESIGN §10)."""

# What a round left is taken away, in both fleets alike; what was seeded stays.
_CLEAR = """
delete from allocation_timeline t using allocations a where a.id = t.allocation_id and a.state = 'requested';
delete from allocations where state = 'requested';
delete from reservations;
delete from claims where created_at > %(began)s;
delete from operations where created_at > %(began)s;
truncate outbox;
update nodes set free_mask = b.free_mask, fit_class = b.fit_class from seeded_nodes b
where b.id = nodes.id and b.free_mask <> nodes.free_mask;
update tenant_quotas q set gpus_used = b.gpus_used from seeded_quotas b
where b.tenant_id = q.tenant_id and b.gpus_used <> q.gpus_used;
"""
# The seeded events have nothing to meter, and are on no server.
_METERED = "update consumer_positions set version = log_head.version from log_head where consumer = 'metering'"
_KEEP = """
create unlogged table seeded_nodes as select id, free_mask, fit_class from nodes;
create unlogged table seeded_quotas as select tenant_id, gpus_used from tenant_quotas;
analyze seeded_nodes, seeded_quotas
"""


@dataclass
class _Side:
    """A fleet behind an API process, and the rates that it has shown."""

    endpoints: Endpoints
    tenants: list[BenchTenant]
    free: list[str]
    began: datetime
    active: int
    nats: LocalNats | None
    creates: list[float] = field(default_factory=list)
    holds: list[float] = field(default_factory=list)

    @property
    def url(self) -> str:
        """PostgreSQL as the owner of the schema."""
        return self.endpoints.database_url

    def measure(self, creates: int, holds: int) -> None:
        """Create and hold so many, after what the round before left is gone."""
        clear(self.url, self.began)
        self.creates.append(drive([self.endpoints.public_port], CLIENTS, creates, self.tenants).per_second)
        clear(self.url, self.began)
        requests = make_holds(self.free[:holds], self.tenants, HOLD_SECONDS)
        self.holds.append(drive_given(self.endpoints.public_port, CLIENTS, requests, {"201"}).per_second)


def clear(url: str, began: datetime) -> None:
    """The database as it was seeded."""
    with psycopg.connect(url, autocommit=True) as connection:
        with psycopg.ClientCursor(connection) as cursor:
            cursor.execute(_CLEAR.encode(), {"began": began})
        connection.execute(
            "vacuum (analyze) nodes, tenant_quotas, claims, operations, outbox, allocations, reservations"
        )
        connection.execute("checkpoint")


def run(quick: bool) -> list[Figure]:
    """All figures; `quick`: a tenth of the fleet and of its past, no limits."""
    share = 10 if quick else 1
    with bench() as servers:
        small = _side(servers, "small", SMALL // share, 0, 0, 0)
        large = _side(servers, "large", NODES // share, TENANTS // share, HISTORY // share, OF_EACH)
        for number in range(2 if quick else 3):
            for side in (small, large) if number % 2 == 0 else (large, small):
                side.measure(CREATES // share, HOLDS // share)
        clear(large.url, large.began)
        found = _rates(small, large)
        found += _asked(large)
        found += [_examined(servers, large), _verified(large, HISTORY // share + large.active)]
        found += _swept(servers, large)
    return found


def _side(servers: Bench, name: str, nodes: int, tenants: int, history: int, of_each: int) -> _Side:
    url, known = servers.fleet(nodes, name)
    nats = _stream(servers, url) if history else None
    if tenants:
        seed_more_tenants(url, tenants)
    if history:
        seed_history(url, history, operations=False)
    active = seed_active(url, of_each) if of_each else 0
    with psycopg.connect(url, autocommit=True) as connection:
        with psycopg.ClientCursor(connection) as cursor:
            cursor.execute(_KEEP.encode())
        row = connection.execute("select clock_timestamp()").fetchone()
    assert row is not None
    free = [slot for slot in list_slots(url) if int(slot.rpartition(":")[2]) >= of_each]
    endpoints = servers.endpoints(url)
    servers.api(endpoints)
    return _Side(endpoints, known, free, row[0], active, nats)


def _rates(small: _Side, large: _Side) -> list[Figure]:
    found = []
    for name, ours, theirs in (("creates", large.creates, small.creates), ("holds", large.holds, small.holds)):
        many, few = statistics.median(ours), statistics.median(theirs)
        over = f"{many:,.0f}/s, {few:,.0f}/s on {SMALL:,} empty nodes"
        found.append(Figure(f"large_{name}", many / few, "ratio", RATIO_MIN, at_least=True, over=over))
    return found


def _asked(large: _Side) -> list[Figure]:
    """Milliseconds of a page of each list, and of a month of availability."""
    admin_key, tenant_key = create_admin_key(large.url, "bench"), large.tenants[0].api_key
    lists = [
        ("tenant_allocations", "/api/v1/allocations", tenant_key), ("admin_allocations", "/api/v1/admin/allocations", admin_key),
        ("admin_nodes", "/api/v1/admin/nodes", admin_key), ("admin_tenants", "/api/v1/admin/tenants", admin_key),
    ]  # fmt: skip
    found = []
    for name, path, key in lists:
        taken = _pages(large.endpoints.public_port, path, key)
        worst = f"largest {max(taken):.0f} ms of {len(taken)} pages of 100"
        found.append(Figure(f"large_{name}_page", percentile(taken, 0.5), "ms", LIST_MS_MAX, note=worst))
    ends_at = (datetime.now(UTC) + timedelta(days=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    query = {"gpus": "8", "count": "64", "ends_at": ends_at, "limit": "500"}
    taken = [_get(large.endpoints.public_port, "/api/v1/availability", tenant_key, query)[0] for _ in range(8)][3:]
    found.append(
        Figure("large_availability", statistics.median(taken), "ms", note="a month, every SKU and region at once")
    )
    return found


def _pages(port: int, path: str, key: str) -> list[float]:
    taken: list[float] = []
    query = {"limit": "100"}
    while len(taken) < PAGES:
        milliseconds, page = _get(port, path, key, query)
        taken.append(milliseconds)
        if not (cursor := page.get("next_cursor")):
            break
        query["cursor"] = str(cursor)
    return taken


def _get(port: int, path: str, key: str, query: dict[str, str]) -> tuple[float, dict[str, object]]:
    began = time.perf_counter()
    answer = httpx.get(
        f"http://127.0.0.1:{port}{path}", params=query, headers={"Authorization": f"Bearer {key}"}, timeout=120
    )
    milliseconds = (time.perf_counter() - began) * 1e3
    answer.raise_for_status()
    page: dict[str, object] = answer.json()
    return milliseconds, page


def _stream(servers: Bench, url: str) -> LocalNats:
    """NATS with the stream that a worker reads, made by a relay before anything is in the log: it stays empty."""
    nats = servers.nats()
    relay = servers.start(relay_plan(servers.endpoints(url, nats.url), free_port()))
    relay.terminate()
    relay.wait_ended()
    return nats


def _swept(servers: Bench, large: _Side) -> list[Figure]:
    """The share of a minute in which a worker sweeps with nothing to do, and its slowest sweeper."""
    assert large.nats is not None, "it has a history"
    with psycopg.connect(large.url) as connection:
        connection.execute(_METERED)
    temporal = LocalTemporal(servers.directory / "servers" / "temporal", free_port(), free_port())
    temporal.start()
    try:
        endpoints = servers.endpoints(large.url, large.nats.url, temporal.address)
        plan = worker_plan(endpoints, servers.authority, free_port())
        worker = servers.start(with_environment(plan, BERTH_NODE_SILENT_SECONDS=str(SILENT_SECONDS)))
        before, began = _sweeps(worker), time.perf_counter()
        time.sleep(SWEEP_SECONDS)
        after, seconds = _sweeps(worker), time.perf_counter() - began
        worker.terminate()
        worker.wait_ended()
    finally:
        temporal.stop()
    spent = {name: (total - before[name][0], count - before[name][1]) for name, (total, count) in after.items()}
    slowest = max(spent, key=lambda name: spent[name][0] / max(1.0, spent[name][1]))
    total = sum(one[0] for one in spent.values())
    busiest = sorted(((one[0], name) for name, one in spent.items()), reverse=True)[:3]
    note = ", ".join(f"{name} {one:.2f} s" for one, name in busiest)
    return [
        Figure("large_sweeping", total / seconds, "of a worker", SWEEP_SHARE_MAX, note=f"{note} in {seconds:.0f} s"),
        Figure("large_slowest_sweeper", spent[slowest][0] / max(1.0, spent[slowest][1]), "s", note=slowest),
    ]


def _sweeps(worker: ChildProcess) -> dict[str, tuple[float, float]]:
    """Seconds and runs of each sweeper since the worker began."""
    text = httpx.get(f"http://127.0.0.1:{worker.plan.metrics_port}/metrics").text
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        if family.name == "berth_worker_sweep_seconds":
            for sample in family.samples:
                found.setdefault(sample.labels["sweeper"], {})[sample.name.rpartition("_")[2]] = sample.value
    return {name: (one["sum"], one["count"]) for name, one in found.items()}


def _examined(servers: Bench, large: _Side) -> Figure:
    """Seconds of `berth doctor`, start of the program included."""
    named = {"BERTH_DATABASE_URL": large.url, "BERTH_STATE_DIR": str(servers.directory / "none")}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "berth.cli", "doctor", "--output", "json"], env={**os.environ, **named}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    findings = json.loads(done.stdout)["findings"]
    return Figure("large_doctor", seconds, "s", DOCTOR_SECONDS_MAX, note=f"{len(findings)} findings")


def _verified(large: _Side, allocations: int) -> Figure:
    """Seconds of the checks for each 100,000 allocations."""
    seconds, slowest = time_checks(large.url, Bounds(operation_retention_seconds=1.0))
    each = seconds / allocations * 100_000
    return Figure("large_verify_each_100000", each, "s", VERIFY_SECONDS_MAX, note=f"{seconds:.1f} s in all; {slowest}")


if __name__ == "__main__":
    figures = run("--quick" in sys.argv)
    for figure in figures:
        print(figure.line())
    sys.exit(0 if all(figure.ok for figure in figures) else 1)
