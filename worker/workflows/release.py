"""The workflow that releases an allocation."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from worker.activities.lifecycle import LifecycleActivities
    from worker.activities.messages import StepInput, StepResult

from worker.workflows.attempts import WaitsForTasks, run_attempts


@workflow.defn(name="release")
class ReleaseWorkflow(WaitsForTasks):
    """From `releasing` to `released`, or to `release_failed` when the attempts are exhausted; also cleans up a failed
    allocation. One per event `provisioning.releasing.requested`.
    """

    @workflow.run
    async def run(self, allocation_id: str) -> StepResult:
        """The outcome of the release."""
        step = StepInput(allocation_id, notify=workflow.info().workflow_id)
        return await run_attempts(
            LifecycleActivities.begin_release, LifecycleActivities.finish_release, step, self._finished
        )
