"""Sets the gauges of allocations, tasks, claims, nodes and GPUs from one snapshot of the database."""

from __future__ import annotations

from orchestrator.allocations.states import FINAL_STATES, AllocationState
from orchestrator.allocations.waits import Wait
from orchestrator.approvals.states import ApprovalAction
from orchestrator.database.census import take_census
from orchestrator.maintenance.states import WindowState
from orchestrator.operations.execution import Context
from orchestrator.tasks.states import LIVE_TASK_STATES
from worker.metrics import (
    ALLOCATIONS,
    APPROVALS_WAITING,
    CLAIMS_WAITING,
    GPUS,
    MAINTENANCE_PLANNED,
    MAINTENANCE_WINDOWS,
    NODES,
    OLDEST_APPROVAL_SECONDS,
    OLDEST_TASK_SECONDS,
    OLDEST_WAIT_SECONDS,
    TASKS,
)

LIVE_STATES = [state.value for state in AllocationState if state not in FINAL_STATES]


async def set_census_gauges(context: Context) -> None:
    """Set every gauge; a node state or pool that has disappeared is removed."""
    census = await take_census(context.database)
    for state in LIVE_STATES:
        ALLOCATIONS.labels(state).set(census.allocations.get(state, 0))
        OLDEST_WAIT_SECONDS.labels(state).set(census.oldest_wait_seconds.get(state, 0.0))
    for state in LIVE_TASK_STATES:
        count, oldest_seconds = census.tasks.get(state.value, (0, 0.0))
        TASKS.labels(state.value).set(count)
        OLDEST_TASK_SECONDS.labels(state.value).set(oldest_seconds)
    for wait in Wait:
        CLAIMS_WAITING.labels(wait.value).set(census.claims_waiting.get(wait.value, 0))
    for action in ApprovalAction:
        count, oldest_seconds = census.approvals_waiting.get(action.value, (0, 0.0))
        APPROVALS_WAITING.labels(action.value).set(count)
        OLDEST_APPROVAL_SECONDS.labels(action.value).set(oldest_seconds)
    for window_state in (WindowState.SCHEDULED, WindowState.ACTIVE):
        windows, planned = census.maintenance.get(window_state.value, (0, 0))
        MAINTENANCE_WINDOWS.labels(window_state.value).set(windows)
        MAINTENANCE_PLANNED.labels(window_state.value).set(planned)
    NODES.clear()
    for (state, online), count in census.nodes.items():
        NODES.labels(state, str(online).lower()).set(count)
    GPUS.clear()
    for pool, by_state in census.gpus.items():
        GPUS.labels(*pool, "total").set(sum(by_state.values()))
        for state, count in by_state.items():
            GPUS.labels(*pool, state.value).set(count)
