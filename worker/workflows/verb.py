"""The workflow that performs a verb of an active allocation."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from worker.activities.lifecycle import LifecycleActivities
    from worker.activities.messages import StepInput, StepResult

from worker.workflows.attempts import WaitsForTasks, run_attempts


@workflow.defn(name="verb")
class VerbWorkflow(WaitsForTasks):
    """One task of the node, tried once: reboot, stop, start or rebuild. One per event `allocation.verb_requested`."""

    @workflow.run
    async def run(self, allocation_id: str) -> StepResult:
        """The outcome of the verb; the allocation is active before it and after it."""
        step = StepInput(allocation_id, notify=workflow.info().workflow_id)
        return await run_attempts(LifecycleActivities.begin_verb, LifecycleActivities.finish_verb, step, self._finished)
