"""Samples of the stage at regular intervals while the load goes on: memory, descriptors, connections, tables, files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from benchmarks.figures import percentile
from tests.campaign.history import DEFINITE, History
from tests.campaign.soak.samples import Bloat, ProcessUse, Sample, TableUse
from tests.campaign.stage import Stage

BLOAT_BYTES_MIN = 1_000_000
"""Smaller tables are not copied: their pages say nothing."""
_SIZES = """
    select coalesce(parent.relname, c.relname)::text as name,
      sum(pg_table_size(c.oid))::bigint as table_bytes, sum(pg_indexes_size(c.oid))::bigint as index_bytes
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    left join pg_inherits i on i.inhrelid = c.oid
    left join pg_class parent on parent.oid = i.inhparent
    where n.nspname = 'public' and c.relkind = 'r'
    group by 1
    order by 1
"""
_CONNECTIONS = """
    select usename::text, count(*)::int from pg_stat_activity
    where datname = current_database() and usename is not null and pid <> pg_backend_pid() group by 1 order by 1
"""
_LARGE = """
    select c.relname::text, (pg_table_size(c.oid) + pg_indexes_size(c.oid))::bigint
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'public' and c.relkind = 'r' and not c.relispartition
      and pg_table_size(c.oid) + pg_indexes_size(c.oid) >= %s
    order by 2 desc
"""


class Sampler:
    """What "disturbs" a soak: it only reads. `samples` has one entry for each interval that is over.

    `problem`: why it could not go on; the load goes on without it. `keep` is called after each sample: a soak that is killed, or
    whose checks take too long, leaves what it has measured.
    """

    def __init__(
        self, stage: Stage, history: History, seconds: float, interval_seconds: float, keep: Callable[[Sampler], None]
    ) -> None:
        self.samples: list[Sample] = []
        self.bloat: list[Bloat] = []
        self.problem: str | None = None
        self._stage = stage
        self._history = history
        self._seconds = seconds
        self._interval_seconds = interval_seconds
        self._keep = keep
        self._seen = 0
        self._stopping = threading.Event()

    def run(self) -> None:
        """Return when the time is over, or soon after `stop`."""
        try:
            self._sample()
        except Exception as error:  # noqa: BLE001 - a thread's exception would be lost; this one fails the soak
            self.problem = f"the sampling ended after {len(self.samples)} samples: {type(error).__name__}: {error}"

    def _sample(self) -> None:
        with psycopg.connect(self._stage.endpoints.database_url, autocommit=True) as database:
            number = 1
            while number * self._interval_seconds <= self._seconds:
                at = self._history.began + number * self._interval_seconds
                if self._stopping.wait(max(0.0, at - time.monotonic())):
                    return
                self.samples.append(self._look(database))
                self._keep(self)
                number += 1
            self.bloat = measure_bloat(database)
            self._keep(self)

    def stop(self) -> None:
        """Take no more samples."""
        self._stopping.set()

    def _look(self, database: psycopg.Connection[Any]) -> Sample:
        names = [*self._stage.process_names, *self._stage.server_names]
        processes = {name: use for name in names if (use := self._use(name)) is not None}
        return Sample(
            round(time.monotonic() - self._history.began, 1), processes, dict(database.execute(_CONNECTIONS).fetchall()),
            table_uses(database), self._work(), self._latencies(), self._directories(),
        )  # fmt: skip

    def _directories(self) -> dict[str, int]:
        state = self._stage.state.path
        agents = {f"agent {name}": path for name, path in self._stage.agent_directories.items()}
        found = {**agents, **{name: state / name for name in ("postgres", "nats", "temporal", "log")}}
        return {name: bytes_of(path) for name, path in found.items()}

    def _use(self, name: str) -> ProcessUse | None:
        """An agent's guests are not its memory: each is there for as long as an allocation."""
        family = self._stage.family_of(name)
        members = family[:1] if name.startswith("agent ") else family
        uses = [use for member in members if (use := _use_of(member)) is not None]
        if not uses:
            return None
        return ProcessUse(
            sum(use.memory_bytes for use in uses), sum(use.descriptors for use in uses),
            sum(use.threads for use in uses), round(sum(use.processor_seconds for use in uses), 2), uses[0].process,
        )  # fmt: skip

    def _work(self) -> dict[str, int]:
        history = self._history
        done = sum(attempt.outcome in DEFINITE for attempt in list(history.attempts))
        return {"writes": done, "events": len(history.deliveries)}

    def _latencies(self) -> dict[str, float]:
        attempts = list(self._history.attempts)
        taken = [1_000 * (one.ended - one.began) for one in attempts[self._seen :] if one.outcome in DEFINITE]
        self._seen = len(attempts)
        return {} if not taken else {"p50": round(percentile(taken, 0.5), 1), "p99": round(percentile(taken, 0.99), 1)}


def _use_of(process: psutil.Process) -> ProcessUse | None:
    try:
        times = process.cpu_times()
        memory = process.memory_full_info().pss
        name = f"{process.pid} of {process.create_time()}"
        return ProcessUse(memory, process.num_fds(), process.num_threads(), times.user + times.system, name)
    except psutil.NoSuchProcess:
        return None


def bytes_of(directory: Path) -> int:
    """What the files below a directory take; those that vanish meanwhile count as nothing."""
    total = 0
    for parent, _, files in os.walk(directory):
        for name in files:
            with suppress(FileNotFoundError):
                total += (Path(parent) / name).lstat().st_size
    return total


def table_uses(database: psycopg.Connection[Any]) -> dict[str, TableUse]:
    """Every table of the product; rows are counted, for estimates of the server may be old."""
    return {
        name: TableUse(table_bytes, index_bytes, _rows(database, name))
        for name, table_bytes, index_bytes in database.execute(_SIZES).fetchall()
    }


def _rows(database: psycopg.Connection[Any], table: str) -> int:
    row = database.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(table))).fetchone()
    assert row is not None
    return int(row[0])


def measure_bloat(database: psycopg.Connection[Any]) -> list[Bloat]:
    """Each large table beside a copy with the same indexes, which is dropped again. It is that of a moment later."""
    found = []
    for table, size_bytes in database.execute(_LARGE, (BLOAT_BYTES_MIN,)).fetchall():
        names = {"table": sql.Identifier(table)}
        database.execute(
            sql.SQL("create table soak_copy (like {table} including indexes including storage)").format(**names)
        )
        try:
            database.execute(sql.SQL("insert into soak_copy select * from {table}").format(**names))
            row = database.execute("select pg_table_size('soak_copy') + pg_indexes_size('soak_copy')").fetchone()
            assert row is not None
            found.append(Bloat(table, size_bytes, int(row[0])))
        finally:
            database.execute("drop table soak_copy")
    return found
