"""`Sweeper`, one row of the table of sweepers, and how a failed item is kept apart from the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from orchestrator.problems import Problem
from worker.sweepers.metrics import SWEEP_FAILURES

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Sweeper:
    """A periodic job. `run` handles one bounded batch and returns True if work is left for the next round.

    `ends` says which wait or backlog the sweeper ends, for docs/reference/sweepers.md.
    """

    name: str
    interval_seconds: float
    run: Callable[[], Awaitable[bool | None]]
    ends: str


@contextmanager
def isolate_failure(sweeper: str, **ids: str) -> Iterator[None]:
    """Log and count an item whose command raised `Problem`, so that the sweep goes on with the next item."""
    try:
        yield
    except Problem as problem:
        SWEEP_FAILURES.labels(sweeper).inc()
        log.warning("sweep_item_failed", sweeper=sweeper, why=str(problem), **ids)


@contextmanager
def isolate_every_failure(sweeper: str, **ids: str) -> Iterator[None]:
    """As `isolate_failure`, and also an error of this program: an item that it stops at each sweep stops no other.

    For items whose content is what nodes report.
    """
    try:
        with isolate_failure(sweeper, **ids):
            yield
    except Exception:
        SWEEP_FAILURES.labels(sweeper).inc()
        log.exception("sweep_item_broken", sweeper=sweeper, **ids)
