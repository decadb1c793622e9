"""The workflow that provisions an allocation and, if that fails, cleans up its units."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from worker.activities.lifecycle import LifecycleActivities
    from worker.activities.messages import StepInput, StepResult

from worker.workflows.attempts import WaitsForTasks, run_attempts


@workflow.defn(name="provisioning")
class ProvisioningWorkflow(WaitsForTasks):
    """From `requested` to `active`, or to `failed` and proven cleanup. One per event `provisioning.requested`."""

    @workflow.run
    async def run(self, allocation_id: str) -> StepResult:
        """The outcome of provisioning, or of the cleanup after a failed one."""
        step = StepInput(allocation_id, notify=workflow.info().workflow_id)
        provisioned = await run_attempts(
            LifecycleActivities.begin_provisioning, LifecycleActivities.finish_provisioning, step, self._finished
        )
        if not provisioned.cleanup:
            return provisioned
        return await run_attempts(
            LifecycleActivities.begin_release, LifecycleActivities.finish_release, step, self._finished
        )
