"""The feed: commit to subscriber when idle, a thousand subscribers of one process, and catching up with a million events."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from dataclasses import asdict
from typing import IO, cast

import psycopg

from benchmarks.figures import Figure, percentile
from benchmarks.log.feed_readers import Arrivals, Plan
from benchmarks.log.relay import FILL
from benchmarks.running import Bench, bench, memory_megabytes
from benchmarks.seeding import seed_operator
from berth.local.processes import ChildProcess

NODES = 1
TENANTS = 16
IDLE_EVENTS = 300
IDLE_MS_MAX = 100.0
STREAMS = 1_000
OFFERED_PER_SECOND = 200.0
OFFERED_SECONDS = 15
MANY_MS_MAX = 500.0
MEGABYTES_MAX = 400.0
BEHIND = 1_000_000
BEHIND_PER_SECOND_MIN = 20_000
SEQUENCED_AT_ONCE = 10_000


def run(quick: bool) -> list[Figure]:
    """An operator's streams: each receives every event."""
    share = 10 if quick else 1
    with bench() as servers:
        url, _ = servers.fleet(NODES)
        key = seed_operator(url)
        endpoints = servers.endpoints(url)
        api = servers.api(endpoints)
        with psycopg.connect(url, autocommit=True) as database:
            behind = _fill(database, BEHIND // share)
            caught_up = _Readers(Plan(endpoints.public_port, key, 1, 0, behind)).arrivals()
            idle = _latencies(database, endpoints.public_port, key, 1, IDLE_EVENTS // share, None)
            many, megabytes = _many(servers, api, database, endpoints.public_port, key, STREAMS // share)
        rate = caught_up.events / (caught_up.ended - caught_up.began)
    return [
        Figure("commit_to_subscriber_p99", percentile(idle, 0.99), "ms", IDLE_MS_MAX, note="one subscriber, idle"),
        Figure(
            f"commit_to_{STREAMS // share}_subscribers_p99", percentile(many, 0.99), "ms", MANY_MS_MAX,
            note=f"{OFFERED_PER_SECOND:.0f} events/s to each, p50 {percentile(many, 0.5):.0f} ms",
        ),
        Figure("memory_api_with_subscribers", megabytes, "MB", MEGABYTES_MAX, note=f"{STREAMS // share:,} streams"),
        Figure(
            "feed_catch_up", rate, "events/s", BEHIND_PER_SECOND_MIN, at_least=True,
            note=f"one subscriber, {behind:,} events behind",
        ),
    ]  # fmt: skip


class _Readers:
    """The process of the subscribers."""

    def __init__(self, plan: Plan) -> None:
        command = [sys.executable, "-m", "benchmarks.log.feed_readers"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with cast(IO[str], self._process.stdin) as asked:
            json.dump(asdict(plan), asked)
        self._told = cast(IO[str], self._process.stdout)
        if self._told.readline() != "ready\n":
            raise RuntimeError("the subscribers did not get their streams")

    def arrivals(self) -> Arrivals:
        """Wait for their end."""
        told = self._told.read()
        if self._process.wait() != 0:
            raise RuntimeError("not every subscriber received every event")
        return Arrivals(**json.loads(told))


def _many(
    servers: Bench, api: ChildProcess, database: psycopg.Connection, port: int, key: str, streams: int
) -> tuple[list[float], float]:
    del servers
    events = int(OFFERED_PER_SECOND * OFFERED_SECONDS)
    latencies = _latencies(database, port, key, streams, events, OFFERED_PER_SECOND)
    return latencies, memory_megabytes(api)


def _latencies(
    database: psycopg.Connection, port: int, key: str, streams: int, events: int, per_second: float | None
) -> list[float]:
    """Milliseconds from the return of COMMIT to each subscriber; what came in one piece counts as late as its oldest event.

    `per_second` None: one at a time, now and then.
    """
    head = _head(database)
    readers = _Readers(Plan(port, key, streams, head, head + events))
    committed: list[float] = []
    began = time.monotonic()
    for number in range(events):
        pause = random.uniform(0.01, 0.05) if per_second is None else began + number / per_second - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        database.execute(FILL, {"events": 1, "tenants": TENANTS})
        committed.append(time.monotonic())
    return [
        (at - committed[first - head - 1]) * 1_000
        for first, last, at in readers.arrivals().pieces
        for _ in range(first, last + 1)
    ]


def _head(database: psycopg.Connection) -> int:
    row = database.execute("select version from log_head").fetchone()
    assert row is not None
    return int(row[0])


def _fill(database: psycopg.Connection, events: int) -> int:
    """The version of the last of so many events."""
    for _ in range(events // SEQUENCED_AT_ONCE):
        database.execute(FILL, {"events": SEQUENCED_AT_ONCE, "tenants": TENANTS})
        while database.execute("select log_advance(%s)", (SEQUENCED_AT_ONCE,)).fetchone() != (0,):
            pass
    database.execute("vacuum (analyze) log, outbox")
    return _head(database)
