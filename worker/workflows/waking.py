"""How a workflow waits for a node's task: a signal is a hint that wakes it, the deadline wakes it otherwise."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from worker.activities.messages import Order, Step

TASK_FINISHED = "task_finished"
"""Name of the signal; its argument is the id of the task."""

SLACK_SECONDS = 0.1
"""Added to a deadline, so that the database's clock has passed it when it is asked."""

COMMAND_SECONDS_MAX = timedelta(seconds=45)
"""Longer than any transaction may take."""

# Trouble with the database passes; a command is repeated until it does. Past the threshold Temporal waits, not this worker.
COMMAND_RETRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
)
LOCAL_RETRIES_MAX = timedelta(seconds=5)


class Ended:
    """Ids of the tasks that are said to have ended. Signals may come before the task's id is known here."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def add(self, task_id: str) -> None:
        """A task has ended, somebody says."""
        self._ids.add(task_id)

    def forget(self, task_id: str | None) -> None:
        """What was said of this task has been looked into."""
        self._ids.discard(task_id or "")

    async def wait(self, step: Step) -> None:
        """Return when the step's task is said to have ended, or its time is up."""
        if step.seconds <= 0:
            return
        try:
            await workflow.wait_condition(lambda: step.task_id in self._ids, timeout=step.seconds + SLACK_SECONDS)
        except TimeoutError:
            return


async def take(step: str, order: Order) -> Step:
    """Run one command as a local activity, for as long as it takes to get an answer."""
    done: Step = await workflow.execute_local_activity(
        step,
        order,
        result_type=Step,
        start_to_close_timeout=COMMAND_SECONDS_MAX,
        retry_policy=COMMAND_RETRIES,
        local_retry_threshold=LOCAL_RETRIES_MAX,
    )
    return done


async def attempts(begin: str, finish: str, order: Order, ended: Ended) -> Step:
    """Begin, wait, finish; again for as long as the finishing says so. The row decides, never the signal."""
    while True:
        step = await take(begin, order)
        if step.kind != "begun":
            return step
        task_id = step.task_id
        while True:
            await ended.wait(step)
            outcome = await take(finish, order)
            if outcome.kind != "waiting":
                break
            # Woken although the row says that the task goes on: that hint is used up, the deadline remains.
            ended.forget(task_id)
            step = Step("begun", seconds=outcome.seconds, task_id=task_id)
        if outcome.kind != "retry":
            return outcome
        await workflow.sleep(outcome.seconds)
