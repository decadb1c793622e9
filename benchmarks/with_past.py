"""Holds and confirms with reservations of the past in the tables, against the same without any.

Two fleets of one server, the same but for the past of one of them, each behind its own API process; rounds alternate
and medians are compared.
"""

from __future__ import annotations

import statistics

import psycopg

from benchmarks.figures import Figure
from benchmarks.load import drive_given
from benchmarks.past import fill_past, vacuum_past
from benchmarks.reserving import list_slots, make_confirms, make_holds
from benchmarks.running import Bench, bench

NODES = 2_000
PAST = 1_000_000
HOLDS = 6_000
CLIENTS = 64
RATIO_MAX = 1.3
TTL_SECONDS = 3_600

# Live rows are deleted, ended ones stay: in both fleets alike.
_CLEAR = (
    "delete from reservations where state in ('hold', 'confirmed')",
    "delete from claims where closed_at is null",
    "delete from operations where not starts_with(key, 'past-')",
    "truncate outbox",
    """update nodes set free_mask = (1::bigint << slot_count) - 1, fit_class = half_slots * 64 + slot_count - half_slots
       where free_mask <> (1::bigint << slot_count) - 1""",
    "update tenant_quotas set gpus_used = 0",
    "vacuum (analyze) nodes, tenant_quotas, claims, operations, reservations, outbox",
    "checkpoint",
)


class _Side:
    """A fleet, and the rates that it has shown."""

    def __init__(self, servers: Bench, name: str, past: int) -> None:
        self._url, self._tenants = servers.fleet(NODES, name)
        if past:
            fill_past(self._url, past)
            vacuum_past(self._url)
        endpoints = servers.endpoints(self._url)
        servers.api(endpoints)
        self._port = endpoints.public_port
        self._units = list_slots(self._url)
        self.holds: list[float] = []
        self.confirms: list[float] = []

    def measure(self, count: int) -> None:
        """Hold so many units, and confirm them."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            for statement in _CLEAR:
                connection.execute(statement.encode())
        self.holds.append(self._rate(make_holds(self._units[:count], self._tenants, TTL_SECONDS), "201"))
        self.confirms.append(self._rate(make_confirms(self._url, self._tenants), "200"))

    def _rate(self, requests: list[list[str]], status: str) -> float:
        return drive_given(self._port, CLIENTS, requests, {status}).per_second


def run(quick: bool) -> list[Figure]:
    """How many times as long holds and confirms take with reservations that have ended."""
    rounds, past, count = (3, PAST // 16, HOLDS // 4) if quick else (5, PAST, HOLDS)
    with bench() as servers:
        without, beside = _Side(servers, "without_past", 0), _Side(servers, "with_past", past)
        for number in range(rounds):
            for side in (without, beside) if number % 2 == 0 else (beside, without):
                side.measure(count)
    return [
        _figure(f"holds_with_{past}_past", without.holds, beside.holds),
        _figure(f"confirms_with_{past}_past", without.confirms, beside.confirms),
    ]


def _figure(name: str, without: list[float], beside: list[float]) -> Figure:
    first, second = statistics.median(without), statistics.median(beside)
    return Figure(
        name, first / second, "ratio", RATIO_MAX, over=f"time each, {second:,.0f}/s beside it, {first:,.0f}/s without"
    )
