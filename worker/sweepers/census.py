"""Keeps the gauges of what lives now: how many allocations wait in each state, since when, and what is free."""

from __future__ import annotations

import time

from orchestrator.allocations.states import FINAL_STATES, LIVE_TASK_STATES, AllocationState
from orchestrator.allocations.waits import Wait
from orchestrator.database.census import take_census
from orchestrator.operations.execution import Context
from worker.metrics import ALLOCATIONS, CLAIMS_WAITING, GPUS, NODES, OLDEST_TASK_SECONDS, OLDEST_WAIT_SECONDS, TASKS

LIVE_STATES = [state.value for state in AllocationState if state not in FINAL_STATES]


class CensusTaker:
    """Takes the census at most once in `seconds`, however often it is asked to: one pass over the fleet has its price."""

    def __init__(self, context: Context, seconds: float) -> None:
        self._context = context
        self._seconds = seconds
        self._due = float("-inf")

    async def take(self) -> None:
        """Set every gauge from one snapshot; what has gone is no longer shown."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._seconds
        census = await take_census(self._context.database)
        for state in LIVE_STATES:
            ALLOCATIONS.labels(state).set(census.allocations.get(state, 0))
            OLDEST_WAIT_SECONDS.labels(state).set(census.oldest_wait_seconds.get(state, 0.0))
        for state in LIVE_TASK_STATES:
            count, oldest_seconds = census.tasks.get(state.value, (0, 0.0))
            TASKS.labels(state.value).set(count)
            OLDEST_TASK_SECONDS.labels(state.value).set(oldest_seconds)
        for wait in Wait:
            CLAIMS_WAITING.labels(wait.value).set(census.claims_waiting.get(wait.value, 0))
        NODES.clear()
        for (state, online), count in census.nodes.items():
            NODES.labels(state, str(online).lower()).set(count)
        GPUS.clear()
        for pool, by_state in census.gpus.items():
            GPUS.labels(*pool, "total").set(sum(by_state.values()))
            for state, count in by_state.items():
                GPUS.labels(*pool, state.value).set(count)
