"""The end of a reset of a BMC, as its event has it."""

from __future__ import annotations

from uuid import uuid4

from node_agent.wire.sites import BmcTaskKind
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_events
from orchestrator.sites.store.bmc_tasks import BmcTask


async def emit_reset_ended(tx: Transaction, task: BmcTask, outcome: str, failure: str | None) -> None:
    """Emit `node.bmc_reset_ended` if the task that has ended resets a BMC."""
    if task.kind is BmcTaskKind.RESET_BMC:
        ended = {"node_id": task.node_id, "task_id": task.id, "outcome": outcome, "failure": failure}
        await append_events(tx, [Event(EventType.NODE_BMC_RESET_ENDED, f"nodes/{task.node_id}", uuid4(), None, ended)])
