"""From `requested` to `active`; or to `failed`, and then on until the units are clean."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from worker.activities.messages import Order, Step

from worker.workflows.waking import TASK_FINISHED, Ended, attempts


@workflow.defn(name="provisioning")
class ProvisioningWorkflow:
    """One per `provisioning.requested`; its id is `provisioning-{event_id}`."""

    def __init__(self) -> None:
        self._ended = Ended()

    @workflow.signal(name=TASK_FINISHED)
    def task_finished(self, task_id: str) -> None:
        """A task that this workflow issued has ended."""
        self._ended.add(task_id)

    @workflow.run
    async def run(self, allocation_id: str) -> Step:
        """What became of the allocation, or of its cleanup if it failed."""
        order = Order(allocation_id, workflow.info().workflow_id)
        outcome = await attempts("begin_provisioning", "finish_provisioning", order, self._ended)
        if not outcome.cleanup:
            return outcome
        return await attempts("begin_release", "finish_release", order, self._ended)
