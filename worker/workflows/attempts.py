"""Runs the attempts of a node's task: begin, wait for a signal or the deadline, finish, and retry if the result says so.

A signal only ends the wait early. Whether the task has ended is read from its row by the finishing activity.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from worker.activities.lifecycle import LifecycleActivities
    from worker.activities.messages import StepInput, StepResult

TASK_FINISHED = "task_finished"
"""Name of the signal; its argument is the id of the task."""

CLOCK_SLACK_SECONDS = 0.1
"""Added to a deadline, so that the database's clock has passed it when the row is read."""

COMMAND_TIMEOUT = timedelta(seconds=45)
"""Longer than the longest transaction."""

COMMAND_RETRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
)
LOCAL_RETRY_MAX = timedelta(seconds=5)
"""A longer pause between retries is a timer in Temporal and occupies no worker."""

Activity = Callable[[LifecycleActivities, StepInput], Awaitable[StepResult]]


class FinishedTasks:
    """Ids of the tasks for which a signal arrived. A signal may arrive before the workflow knows the task's id."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def add(self, task_id: str) -> None:
        """Record a signal."""
        self._ids.add(task_id)

    def discard(self, task_id: str | None) -> None:
        """Forget the signal of a task, so that the next wait is not ended by it."""
        self._ids.discard(task_id or "")

    async def wait(self, task_id: str | None, seconds: float) -> None:
        """Return when the task's signal has arrived or `seconds` have passed."""
        if seconds <= 0:
            return
        try:
            await workflow.wait_condition(lambda: task_id in self._ids, timeout=seconds + CLOCK_SLACK_SECONDS)
        except TimeoutError:
            return


class WaitsForTasks:
    """Base of workflows whose tasks end with a signal. Signals and `__init__` are inherited."""

    def __init__(self) -> None:
        self._finished = FinishedTasks()

    @workflow.signal(name=TASK_FINISHED)
    def task_finished(self, task_id: str) -> None:
        """A task of this workflow has ended."""
        self._finished.add(task_id)


async def run_command(command: Activity, step: StepInput) -> StepResult:
    """Run one activity locally. It is retried until it returns: an unavailable database becomes available again."""
    return await workflow.execute_local_activity_method(
        command,
        step,
        start_to_close_timeout=COMMAND_TIMEOUT,
        retry_policy=COMMAND_RETRIES,
        local_retry_threshold=LOCAL_RETRY_MAX,
    )


async def run_attempts(begin: Activity, finish: Activity, step: StepInput, finished: FinishedTasks) -> StepResult:
    """Begin, wait and finish until `finish` orders no further attempt; the result of the last activity."""
    while True:
        begun = await run_command(begin, step)
        if begun.kind != "begun":
            return begun
        seconds = begun.seconds
        while True:
            await finished.wait(begun.task_id, seconds)
            outcome = await run_command(finish, step)
            if outcome.kind != "waiting":
                break
            # The signal came although the row says that the task still runs: wait for the deadline.
            finished.discard(begun.task_id)
            seconds = outcome.seconds
        if outcome.kind != "retry":
            return outcome
        await workflow.sleep(outcome.seconds)
