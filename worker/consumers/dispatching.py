"""What each event of the log leads to: a workflow starts, or one is woken."""

from __future__ import annotations

from worker.consumers.events import PROVISIONING_REQUESTED, RELEASING_REQUESTED, ConsumedEvent
from worker.workflows.starting import WorkflowStarter


async def dispatch(starter: WorkflowStarter, event: ConsumedEvent) -> str:
    """Do what the event asks for and answer what was done, in a word. Raises `RPCError` if Temporal cannot be asked."""
    if event.type == PROVISIONING_REQUESTED and event.allocation_id is not None:
        started = await starter.start("provisioning", f"provisioning-{event.id}", event.allocation_id)
        return "started" if started else "repeated"
    if event.type == RELEASING_REQUESTED and event.allocation_id is not None:
        started = await starter.start("release", f"releasing-{event.id}", event.allocation_id)
        return "started" if started else "repeated"
    if event.task is None or event.task.notify is None:
        return "nobody_waits"
    woken = await starter.wake(event.task.notify, event.task.id)
    return "woken" if woken else "nobody_waits"
