"""The jobs of the Philly excerpt, with time compressed (SOURCE.txt says where they come from)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

EXCERPT = Path(__file__).with_name("philly_excerpt.csv")
LIFE_SECONDS_LEAST, LIFE_SECONDS_MAX = 0.02, 1.0


@dataclass(frozen=True)
class Job:
    """One job: when it arrives after the first, how long it uses its GPUs once it has them, how many it wants."""

    number: int
    arrives_seconds: float
    life_seconds: float
    gpus: int


def read_jobs(span_seconds: float, path: Path = EXCERPT) -> list[Job]:
    """All jobs by time of arrival, the whole of it squeezed into `span_seconds`.

    Durations are compressed by the same factor and bounded, so that none outlasts the demo.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    times = [datetime.fromisoformat(row["timestamp"]) for row in rows]
    if times != sorted(times):
        raise ValueError(f"{path.name} is not sorted by time")
    factor = (times[-1] - times[0]).total_seconds() / span_seconds
    return [
        Job(
            number=number,
            arrives_seconds=(at - times[0]).total_seconds() / factor,
            life_seconds=min(LIFE_SECONDS_MAX, max(LIFE_SECONDS_LEAST, float(row["duration"]) / factor)),
            gpus=int(row["num_gpus"]),
        )
        for number, (at, row) in enumerate(zip(times, rows, strict=True))
    ]
