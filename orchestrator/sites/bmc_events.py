"""Events of BMCs: the end of a reset, and passwords, sealed as they are stored."""

from __future__ import annotations

from uuid import UUID, uuid4

from node_agent.wire.sites import BmcTaskKind
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event, append_events
from orchestrator.sites.store import bmcs
from orchestrator.sites.store.bmc_tasks import BmcTask


async def emit_reset_ended(tx: Transaction, task: BmcTask, outcome: str, failure: str | None) -> None:
    """Emit `node.bmc_reset_ended` if the task that has ended resets a BMC."""
    if task.kind is BmcTaskKind.RESET_BMC:
        ended = {"node_id": task.node_id, "task_id": task.id, "outcome": outcome, "failure": failure}
        await append_events(tx, [Event(EventType.NODE_BMC_RESET_ENDED, f"nodes/{task.node_id}", uuid4(), None, ended)])


async def emit_password(tx: Transaction, site_id: UUID, node_id: UUID, generation: int, *, given: bool) -> None:
    """Emit `node.bmc_password_stored` for a stored generation of the locked BMC, so that a restore to an earlier moment has it.

    `given`: the BMC accepts it.
    """
    sealed = (await bmcs.sealed_passwords(tx, node_id)).get(generation, {})
    stored = {
        "node_id": node_id, "site_id": site_id, "generation": generation, "given": given,
        "sealed": {str(recipient): text for recipient, text in sealed.items()},
    }  # fmt: skip
    await append_event(tx, Event(EventType.NODE_BMC_PASSWORD_STORED, f"nodes/{node_id}", uuid4(), None, stored))
