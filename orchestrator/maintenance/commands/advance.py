"""The sweeper's commands: start and end windows at their times, delete those past their retention (P9, P13)."""

from __future__ import annotations

from uuid import UUID, uuid4

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.maintenance import store, tasks_store
from orchestrator.maintenance.changes import note_change, note_not_run
from orchestrator.maintenance.states import WindowState
from orchestrator.operations.execution import Context, transact
from orchestrator.tenants.principals import Actor, ActorKind

_SWEEPER = Actor(ActorKind.WORKER, "sweeper")
_NOT_BEGUN = "window_over: the window ended before its units were all held and the node could begin"
_RESETTING = "its maintenance window ended while the reset of its GPU was open"


async def advance_window(context: Context, window_id: UUID) -> WindowState | None:
    """Start or end a window whose time has come, evaluated after its locks; return its new state, None: nothing was due.

    It does not end while its task runs on a node: the task has a deadline, and its units stay occupied until its result is known.
    Slots of an issued reset of GPUs that is not judged yet are taken into quarantine before the window ends.
    """

    async def work(tx: Transaction) -> WindowState | None:
        window = await store.lock_due(tx, window_id)
        if window is None:
            return None
        if window.state is WindowState.SCHEDULED:
            window = await store.start_window(tx, window_id)
            await note_change(tx, window, EventType.MAINTENANCE_STARTED, _SWEEPER, None)
        elif await tasks_store.find_running(tx, window_id) is not None:
            return None
        else:
            await _keep_resetting_out(tx, window_id)
            ended = await tasks_store.end_waiting(tx, window_id, _NOT_BEGUN)
            await note_not_run(tx, window, ended, _NOT_BEGUN, _SWEEPER, None)
            window = await store.close_window(tx, window, WindowState.ENDED)
            await note_change(tx, window, EventType.MAINTENANCE_ENDED, _SWEEPER, None)
        return window.state

    return await transact(context, work)


async def _keep_resetting_out(tx: Transaction, window_id: UUID) -> None:
    """A slot whose GPU a task resets does not return with the window: whether the reset is proven is judged later."""
    by = f"{_SWEEPER.kind.value}:{_SWEEPER.id}"
    for node_id, slot_index in await store.keep_resetting_out(tx, window_id, reason=_RESETTING, by=by):
        subject, said = f"nodes/{node_id}", {"slot": slot_index, "reason": _RESETTING}
        payload = {"node_id": node_id, **said, "source": "operator"}
        await append_event(tx, Event(EventType.NODE_SLOT_QUARANTINED, subject, uuid4(), None, payload))
        await audit.record(tx, _SWEEPER, "node.slot_quarantine", subject, said, None)


async def retire_windows(context: Context, retention_seconds: float, limit: int) -> int:
    """Delete at most `limit` windows past their retention, the earliest first; return how many."""

    async def work(tx: Transaction) -> int:
        return await store.delete_over(tx, retention_seconds, limit)

    return await transact(context, work)
