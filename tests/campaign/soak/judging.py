"""Whether something grew: the last third of a soak beside the second, after the first has filled caches and pools."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from tests.campaign.soak.samples import Sample, Soak

GROWTH_MAX = 1.03
"""The last third at most 3 % above the second."""
PAGES_MAX = 1.10
"""A table of as many rows may have so many more pages: vacuum comes at intervals."""
TABLE_BYTES_MIN = 2_000_000
"""A table that grew by less is not judged by its size: it is some pages."""
ROWS_MIN = 50
"""So many rows more are no growth: what waits at a moment changes by that."""
HISTORIES = {
    "allocations": "ended ones: `berth archive run`",
    "allocation_timeline": "with its allocation",
    "claims": "of allocations: with the allocation",
    "node_tasks": "of allocations: with the allocation",
    "wipe_certificates": "with its allocation",
    "audit_chain": "`berth archive run`, where a retention is set",
    "ledger": "never",
    "metering_intervals": "never",
    "operations": "after a day",
    "webhook_deliveries": "after a week, and beyond so many of a webhook",
    "node_certificates": "with a later one of its node, 30 days after its end",
    "certificate_requests": "with a later one of its node, after 30 days",
    "enrolment_tokens": "with a later one of its node, a day after its end",
    "maintenance_windows": "after 90 days",
    "maintenance_units": "with its window",
    "nodes": "retired ones: never",
    "slots": "with its node: never",
    "sku_prices": "never: a line of the ledger names its price",
}
"""Tables that keep what happened, and when a row ends. They may grow with the work, and no faster than their rows.

What ends their rows works in days, and is tested where it is built.
"""
SHOWN_ONLY = {"temporal": "a server for development, which keeps each history in memory"}
FILES_SHOWN_ONLY = {*SHOWN_ONLY, "postgres"}
"""Each of its sessions keeps files of tables open up to a bound."""
STORES = frozenset({"postgres", "nats", "temporal", "log"})
"""Directories that grow with the work by their purpose: shown only. An agent's may not."""
DIRECTORY_BYTES_MIN = 2_000_000
"""An agent's images come and go."""


@dataclass(frozen=True)
class Comparison:
    """One quantity in the second and in the last third."""

    name: str
    second: float
    last: float
    limit: float | None
    """How many times the second third the last may be; None: shown only."""
    slack: float = 0.0
    """So much more is allowed beside that."""

    @property
    def kept(self) -> bool:
        """Whether the limit is kept."""
        return self.limit is None or self.last <= self.second * self.limit + self.slack

    @property
    def ratio(self) -> float:
        """The last third over the second."""
        return self.last / self.second if self.second else 1.0


def thirds(samples: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """The second third and the last. Raises ValueError for fewer than three samples."""
    if len(samples) < 3:
        raise ValueError(f"{len(samples)} samples cannot be compared: take at least 3")
    size = len(samples) // 3
    return samples[-2 * size : -size], samples[-size:]


def steady_parts(samples: Sequence[Sample]) -> list[str]:
    """The parts that ran from the first sample to the last. Agents come and go with their nodes; see `changed_parts`."""
    present = set(samples[0].processes).intersection(*(sample.processes for sample in samples))
    return [name for name in samples[-1].processes if name in present]


def changed_parts(samples: Sequence[Sample]) -> list[str]:
    """What did not run all the time as one process, a sentence each: its memory began anew, so that nothing is known of it."""
    found = []
    for name in sorted({name for one in samples for name in one.processes if not name.startswith("agent ")}):
        uses = [one.processes.get(name) for one in samples]
        processes = {use.process for use in uses if use is not None}
        if None in uses:
            found.append(f"{name} did not run in {uses.count(None)} samples")
        elif len(processes) > 1:
            found.append(f"{name} was {len(processes)} processes")
    return found


def memory(samples: Sequence[Sample]) -> list[Comparison]:
    """Each part's memory in bytes, by medians: one sample may meet a peak."""
    return _compared(
        samples, lambda one, name: one.processes[name].memory_bytes, statistics.median, SHOWN_ONLY, GROWTH_MAX
    )


def descriptors(samples: Sequence[Sample]) -> list[Comparison]:
    """Open files and sockets of each part, by the least that was seen: requests under way come and go."""
    return _compared(samples, lambda one, name: one.processes[name].descriptors, min, FILES_SHOWN_ONLY, 1.0, slack=2)


def threads(samples: Sequence[Sample]) -> list[Comparison]:
    """Threads of each part, by the least."""
    return _compared(samples, lambda one, name: one.processes[name].threads, min, SHOWN_ONLY, 1.0, slack=2)


def directories(samples: Sequence[Sample]) -> list[Comparison]:
    """Bytes of the files of each part that was there throughout, by medians."""
    second, last = thirds(samples)
    present = set(samples[0].directory_bytes).intersection(*(one.directory_bytes for one in samples))
    return [
        Comparison(
            name, statistics.median(one.directory_bytes[name] for one in second),
            statistics.median(one.directory_bytes[name] for one in last),
            None if name in STORES else PAGES_MAX, DIRECTORY_BYTES_MIN,
        )
        for name in sorted(present)
    ]  # fmt: skip


def _compared(
    samples: Sequence[Sample], of: Callable[[Sample, str], float], middle: Callable[[Iterable[float]], float],
    shown_only: Container[str], limit: float, slack: float = 0.0,
) -> list[Comparison]:  # fmt: skip
    second, last = thirds(samples)
    return [
        Comparison(
            name, middle([of(one, name) for one in second]), middle([of(one, name) for one in last]),
            None if name in shown_only else limit, slack,
        )
        for name in steady_parts(samples)
    ]  # fmt: skip


def connections(samples: Sequence[Sample]) -> list[Comparison]:
    """Connections to PostgreSQL by role: the most of the last third is no more than the most of those before."""
    second, last = thirds(samples)
    return [
        Comparison(
            role, max(one.connections.get(role, 0) for one in second), max(one.connections.get(role, 0) for one in last),
            1.0,
        )
        for role in sorted({role for one in samples for role in one.connections})
    ]  # fmt: skip


def rows(samples: Sequence[Sample]) -> list[Comparison]:
    """Rows of each table. Those of a history are shown only."""
    second, last = thirds(samples)
    return [
        Comparison(
            table, statistics.median(one.tables[table].rows for one in second),
            statistics.median(one.tables[table].rows for one in last),
            None if table in HISTORIES else GROWTH_MAX, ROWS_MIN,
        )
        for table in sorted(samples[-1].tables)
    ]  # fmt: skip


def sizes(samples: Sequence[Sample]) -> list[Comparison]:
    """Bytes of each table and of its indexes, which may grow as its rows did and by a tenth."""
    second, last = thirds(samples)
    grown = {one.name: max(1.0, one.ratio) for one in rows(samples)}
    found = []
    for table in sorted(samples[-1].tables):
        for part in ("table_bytes", "index_bytes"):
            before, after = (
                statistics.median(getattr(one.tables[table], part) for one in third) for third in (second, last)
            )
            name = table if part == "table_bytes" else f"indexes of {table}"
            found.append(Comparison(name, before, after, grown[table] * PAGES_MAX, TABLE_BYTES_MIN))
    return found


def judge(soak: Soak) -> list[str]:
    """What is wrong, a sentence each."""
    expected = math.floor(soak.minutes * 60 / soak.every_seconds)
    found = list(soak.violations)
    if len(soak.samples) < expected:
        found.append(f"{len(soak.samples)} of {expected} samples were taken")
    found += changed_parts(soak.samples)
    for what, comparisons in (
        ("memory of", memory(soak.samples)),
        ("open files of", descriptors(soak.samples)),
        ("threads of", threads(soak.samples)),
        ("files of", directories(soak.samples)),
        ("connections of", connections(soak.samples)),
        ("rows of", rows(soak.samples)),
        ("size of", sizes(soak.samples)),
    ):
        found += [
            f"{what} {one.name} grew from {one.second:,.0f} to {one.last:,.0f} ({one.ratio:.3f})"
            for one in comparisons
            if not one.kept
        ]
    return found
