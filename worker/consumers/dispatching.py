"""Maps each consumed event to its effect: start a workflow, or signal one."""

from __future__ import annotations

from collections.abc import Mapping

from worker.consumers.events import PROVISIONING_REQUESTED, RELEASING_REQUESTED, VERB_REQUESTED, ConsumedEvent
from worker.workflows.starting import WorkflowName, WorkflowStarter

WORKFLOWS: Mapping[str, WorkflowName] = {
    PROVISIONING_REQUESTED: "provisioning",
    RELEASING_REQUESTED: "release",
    VERB_REQUESTED: "verb",
}
"""The workflow that each type of event starts."""


async def dispatch(starter: WorkflowStarter, event: ConsumedEvent) -> str:
    """Apply the event and return its outcome, a label of `berth_worker_events_total`.

    Raises `RPCError` if Temporal is unavailable or refuses.
    """
    if event.type in WORKFLOWS and event.allocation_id is not None:
        started = await starter.start(WORKFLOWS[event.type], event.id, event.allocation_id, event.tenant_id)
        return "started" if started else "repeated"
    if event.task is None or event.task.notify is None:
        return "no_workflow"
    signalled = await starter.signal_task_finished(event.task.notify, event.task.id)
    return "signalled" if signalled else "no_workflow"
