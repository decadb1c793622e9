"""From `releasing` to `released`, or to `release_failed` when attempts are exhausted; and the cleanup of a failed one."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from worker.activities.messages import Order, Step

from worker.workflows.waking import TASK_FINISHED, Ended, attempts


@workflow.defn(name="release")
class ReleaseWorkflow:
    """One per `provisioning.releasing.requested`; its id is `releasing-{event_id}`."""

    def __init__(self) -> None:
        self._ended = Ended()

    @workflow.signal(name=TASK_FINISHED)
    def task_finished(self, task_id: str) -> None:
        """A task that this workflow issued has ended."""
        self._ended.add(task_id)

    @workflow.run
    async def run(self, allocation_id: str) -> Step:
        """What became of the release."""
        order = Order(allocation_id, workflow.info().workflow_id)
        return await attempts("begin_release", "finish_release", order, self._ended)
