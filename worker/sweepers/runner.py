"""Runs every sweeper at its interval, one after another, and keeps running when one of them fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from orchestrator.problems import Problem
from worker.sweepers.metrics import SWEEP_FAILURES, SWEEP_SECONDS
from worker.sweepers.sweeper import Sweeper

log = structlog.get_logger()

BACKOFF_FACTOR_MAX = 4
"""A sweeper that keeps failing runs at least once in so many of its intervals: the waits it ends have deadlines."""


@dataclass(slots=True)
class _Schedule:
    sweeper: Sweeper
    due: float = float("-inf")
    failures: int = 0


class SweepRunner:
    """Runs due sweepers in table order. A failed sweep is logged, counted, and retried after a growing pause.

    A sweeper runs at its interval, and after `pause_seconds` where its interval is 0 or work is left. `clock` returns
    monotonic seconds. `unavailable` are the
    errors of a server that is away, which are logged without a traceback.
    """

    def __init__(
        self,
        sweepers: Sequence[Sweeper],
        pause_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        unavailable: tuple[type[Exception], ...] = (Problem,),
    ) -> None:
        self._schedules = [_Schedule(sweeper) for sweeper in sweepers]
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._unavailable = unavailable
        for sweeper in sweepers:
            SWEEP_FAILURES.labels(sweeper.name)
            SWEEP_SECONDS.labels(sweeper.name)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.run_due()
            await asyncio.sleep(max(0.0, self.next_due() - self._clock()))

    def next_due(self) -> float:
        """When the next sweeper is due, by the clock."""
        return min(schedule.due for schedule in self._schedules)

    async def run_due(self) -> None:
        """Run each sweeper that is due once."""
        for schedule in self._schedules:
            if self._clock() >= schedule.due:
                await self._run(schedule)

    async def _run(self, schedule: _Schedule) -> None:
        sweeper = schedule.sweeper
        interval_seconds = sweeper.interval_seconds or self._pause_seconds
        try:
            with SWEEP_SECONDS.labels(sweeper.name).time():
                work_left = await sweeper.run()
        except Exception as error:  # noqa: BLE001 - a defect in one sweeper must not stop the others
            SWEEP_FAILURES.labels(sweeper.name).inc()
            factor = min(2**schedule.failures, BACKOFF_FACTOR_MAX)
            schedule.failures = min(schedule.failures + 1, BACKOFF_FACTOR_MAX)
            schedule.due = self._clock() + interval_seconds * factor
            self._log_failure(sweeper, error, interval_seconds * factor)
            return
        schedule.failures = 0
        schedule.due = self._clock() + (min(self._pause_seconds, interval_seconds) if work_left else interval_seconds)

    def _log_failure(self, sweeper: Sweeper, error: Exception, retry_seconds: float) -> None:
        """A server that is unavailable is a warning; any other exception is a defect and keeps its traceback."""
        expected = isinstance(error, self._unavailable)
        write = log.warning if expected else log.error
        write("sweep_failed", sweeper=sweeper.name, why=str(error), retry_seconds=retry_seconds, exc_info=not expected)
