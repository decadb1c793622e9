"""CPU time of PostgreSQL for each create and hold through HTTP, with and without the policies of the public API's role.

Rounds alternate; the median of the ratios of neighbours is the figure. The API connects as `berth_public_api` in both, and names
its tenants in both.
"""

from __future__ import annotations

import statistics
from collections import defaultdict

import psutil
import psycopg

from benchmarks.figures import Figure
from benchmarks.load import drive, drive_given
from benchmarks.reserving import list_slots, make_holds
from benchmarks.running import Bench, bench
from benchmarks.seeding import BenchTenant, empty_fleet
from migrations.privileges import apply_privileges

NODES = 3_000
RATIO_MAX = 1.05
CREATES = {1: 800, 64: 12_000}
HOLDS = {1: 800, 64: 12_000}
ROUNDS = 5

_TABLES = "select relname from pg_class where relrowsecurity and relnamespace = 'public'::regnamespace"


def run(quick: bool) -> list[Figure]:
    """One figure for each kind of request and number of clients."""
    rounds, share = (2, 4) if quick else (ROUNDS, 1)
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        endpoints = servers.endpoints(url)
        servers.api(endpoints)
        port = endpoints.public_port
        units = list_slots(url)
        creates: defaultdict[tuple[int, bool], list[float]] = defaultdict(list)
        holds: defaultdict[tuple[int, bool], list[float]] = defaultdict(list)
        for number in range(rounds):
            # Each goes first as often as the other.
            for limited in (True, False) if number % 2 else (False, True):
                set_policies(url, limited)
                for clients, count in CREATES.items():
                    cost = _cpu_per_create(servers, url, port, clients, count // share, tenants)
                    creates[clients, limited].append(cost)
                for clients, count in HOLDS.items():
                    given = make_holds(units[: count // share], tenants, 3_600)
                    holds[clients, limited].append(_cpu_per_hold(servers, url, port, clients, given))
    return [
        _figure(f"{kind}_policies_{clients}_clients", found[clients, True], found[clients, False])
        for kind, found in (("create", creates), ("hold", holds))
        for clients in CREATES
    ]


def set_policies(url: str, limited: bool) -> None:
    """Make the policies of every table, or drop them."""
    with psycopg.connect(url, autocommit=True) as connection:
        if limited:
            apply_privileges(connection)
            return
        for (table,) in connection.execute(_TABLES).fetchall():
            # So that `apply_privileges` makes them again.
            connection.execute(f"drop policy own_tenant on {table}; drop policy everyone on {table}".encode())
            connection.execute(f"alter table {table} disable row level security".encode())


def _cpu_per_create(
    servers: Bench, url: str, port: int, clients: int, creates: int, tenants: list[BenchTenant]
) -> float:
    """Microseconds of all of the server's processes; the requests that warm up are divided by as well."""
    empty_fleet(url)
    drive([port], clients, max(50, creates // 10), tenants)  # sessions have planned their statements anew
    empty_fleet(url)
    with psycopg.connect(url, autocommit=True) as connection:
        before = database_cpu_seconds(servers)
        drive([port], clients, creates, tenants)
        used = database_cpu_seconds(servers) - before
        row = connection.execute("select count(*) from allocations").fetchone()
    assert row is not None
    return used / float(row[0]) * 1e6


def _cpu_per_hold(servers: Bench, url: str, port: int, clients: int, given: list[list[str]]) -> float:
    """Microseconds of all of the server's processes for each hold of one slot, after a tenth of the holds to warm up."""
    warm = max(50, len(given) // 10)
    _forget_holds(url)
    drive_given(port, clients, given[:warm], {"201"})
    before = database_cpu_seconds(servers)
    drive_given(port, clients, given[warm:], {"201"})
    used = database_cpu_seconds(servers) - before
    _forget_holds(url)
    return used / (len(given) - warm) * 1e6


def _forget_holds(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate reservations")
    empty_fleet(url)


def database_cpu_seconds(servers: Bench) -> float:
    """CPU time of the postmaster, its live children and those that it has reaped."""
    pid = int((servers.postgres.directory / "postmaster.pid").read_text().split()[0])
    server = psutil.Process(pid)
    own = server.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in server.children():
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _figure(name: str, limited: list[float], free: list[float]) -> Figure:
    ratio = statistics.median(one / other for one, other in zip(limited, free, strict=True))
    note = f"{statistics.median(limited):,.0f} us of PostgreSQL with the policies, {statistics.median(free):,.0f} us without"
    return Figure(
        name,
        ratio,
        "ratio",
        RATIO_MAX,
        over="over the same without policies:",
        note=note,
    )
