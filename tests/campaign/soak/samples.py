"""What a soak measures at one moment, and the file that keeps it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ProcessUse:
    """What a part uses, its children included: proportional set size, open files and sockets, threads, processor time since
    its start. `process`: its id and when it started; another one is another process."""

    memory_bytes: int
    descriptors: int
    threads: int
    processor_seconds: float
    process: str = ""


@dataclass(frozen=True)
class TableUse:
    """One table, its partitions together: size with TOAST and maps, size of its indexes, rows."""

    table_bytes: int
    index_bytes: int
    rows: int


@dataclass(frozen=True)
class Sample:
    """The stage at one moment. `connections`: to PostgreSQL, by role. `work`: what the load has done so far, by name."""

    seconds: float
    processes: dict[str, ProcessUse]
    connections: dict[str, int]
    tables: dict[str, TableUse]
    work: dict[str, int]
    latencies_ms: dict[str, float] = field(default_factory=dict)
    """Of the writes since the sample before: `p50` and `p99`."""
    directory_bytes: dict[str, int] = field(default_factory=dict)
    """Files of each part: an agent's state, the stores of the servers, the logs."""


@dataclass(frozen=True)
class Bloat:
    """A table at the end, with its indexes, beside a fresh copy of the same rows."""

    table: str
    size_bytes: int
    copy_bytes: int


@dataclass(frozen=True)
class Soak:
    """All of a soak."""

    seed: int
    minutes: float
    cores: int
    samples: Sequence[Sample]
    bloat: Sequence[Bloat]
    violations: Sequence[str]
    """What the checks of the campaign found, and why the sampling ended early."""
    every_seconds: float = 30.0
    """Between two samples."""

    def write(self, file: Path) -> None:
        """Store it as JSON, in place of an earlier one, whole or not at all."""
        half = file.with_suffix(".half")
        half.write_text(json.dumps(asdict(self)) + "\n")
        half.replace(file)


def read_soak(file: Path) -> Soak:
    """What `write` stored. Raises OSError, ValueError, KeyError or TypeError if it is none."""
    document = json.loads(file.read_text())
    samples = [
        Sample(
            **{
                **one,
                "processes": {name: ProcessUse(**use) for name, use in one["processes"].items()},
                "tables": {name: TableUse(**use) for name, use in one["tables"].items()},
            }
        )
        for one in document["samples"]
    ]
    return Soak(**{**document, "samples": samples, "bloat": [Bloat(**one) for one in document["bloat"]]})
