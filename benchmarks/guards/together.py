"""Creates through HTTP with limits of principals, row-level security and audit, over the same without all three.

Two API processes over one database, one of them without the limits of principals; policies and the trigger that writes the audit
are there or dropped. Rounds alternate; the figure is the median of the ratios of neighbours. The processor time of PostgreSQL
and of the API process for each create decides: rates of single rounds differ by more than the budget.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, replace

import psutil
import psycopg

from benchmarks.figures import Figure
from benchmarks.guards.row_security import database_cpu_seconds, set_policies
from benchmarks.load import drive
from benchmarks.running import Bench, bench
from benchmarks.seeding import BenchTenant, empty_fleet
from berth.local.processes import ChildProcess, Endpoints, orchestrator_plan
from berth.local.servers import free_port

NODES = 3_000
CREATES = {1: 800, 64: 12_000}
ROUNDS = 7
RATIO_MAX = 1.05

_AUDIT_TRIGGERS = """
select t.tgname from pg_trigger t join pg_proc p on p.oid = t.tgfoid
where t.tgrelid = 'operations'::regclass and p.proname = 'audit_operation'
"""


@dataclass(frozen=True)
class _Door:
    """An API process and its public port."""

    child: ChildProcess
    port: int

    def cpu_seconds(self) -> float:
        """CPU time of the process so far."""
        assert self.child.process is not None
        times = psutil.Process(self.child.process.pid).cpu_times()
        return times.user + times.system


@dataclass(frozen=True)
class _Cost:
    """Microseconds of processor time for each create, and creates per second."""

    microseconds: float
    rate: float


def run(quick: bool) -> list[Figure]:
    """One figure for each number of clients."""
    rounds, share = (2, 4) if quick else (ROUNDS, 1)
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        doors = {True: _door(servers, url, None), False: _door(servers, url, "benchmarks.guards.unguarded")}
        found: defaultdict[tuple[int, bool], list[_Cost]] = defaultdict(list)
        for number in range(rounds):
            # Each goes first as often as the other.
            for guarded in (True, False) if number % 2 else (False, True):
                set_policies(url, guarded)
                _set_audit(url, guarded)
                for clients, count in CREATES.items():
                    found[clients, guarded].append(
                        _measure(servers, url, doors[guarded], clients, count // share, tenants)
                    )
    return [_figure(clients, found[clients, True], found[clients, False]) for clients in CREATES]


def _door(servers: Bench, url: str, launcher: str | None) -> _Door:
    endpoints: Endpoints = servers.endpoints(url)
    plan = replace(orchestrator_plan("public", endpoints, servers.authority, free_port()), launcher=launcher)
    return _Door(servers.start(plan), endpoints.public_port)


def _set_audit(url: str, written: bool) -> None:
    state = psycopg.sql.SQL("enable" if written else "disable")
    with psycopg.connect(url, autocommit=True) as connection:
        triggers = connection.execute(_AUDIT_TRIGGERS.encode()).fetchall()
        assert triggers, "no trigger writes the audit: the benchmark would compare nothing"
        for (name,) in triggers:
            statement = psycopg.sql.SQL("alter table operations {} trigger {}")
            connection.execute(statement.format(state, psycopg.sql.Identifier(name)))


def _measure(servers: Bench, url: str, door: _Door, clients: int, creates: int, tenants: list[BenchTenant]) -> _Cost:
    empty_fleet(url)
    drive([door.port], clients, max(50, creates // 10), tenants)  # sessions have planned their statements anew
    empty_fleet(url)
    began, before = time.monotonic(), database_cpu_seconds(servers) + door.cpu_seconds()
    drive([door.port], clients, creates, tenants)
    used, took = database_cpu_seconds(servers) + door.cpu_seconds() - before, time.monotonic() - began
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("select count(*) from allocations").fetchone()
    assert row is not None
    return _Cost(used / float(row[0]) * 1e6, float(row[0]) / took)


def _figure(clients: int, guarded: list[_Cost], bare: list[_Cost]) -> Figure:
    ratio = statistics.median(one.microseconds / other.microseconds for one, other in zip(guarded, bare, strict=True))
    cost, rate = _medians(guarded)
    bare_cost, bare_rate = _medians(bare)
    note = f"{cost:,.0f} us and {rate:,.0f}/s with limits, policies and audit, {bare_cost:,.0f} us and {bare_rate:,.0f}/s without"
    return Figure(
        f"create_guards_{clients}_clients", ratio, "ratio", RATIO_MAX, over="over the same without them:", note=note
    )


def _medians(costs: list[_Cost]) -> tuple[float, float]:
    return statistics.median(one.microseconds for one in costs), statistics.median(one.rate for one in costs)
