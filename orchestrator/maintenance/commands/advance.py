"""The sweeper's commands: start and end windows at their times, delete those past their retention (P9, P13)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.log.events import EventType
from orchestrator.maintenance import store
from orchestrator.maintenance.changes import note_change
from orchestrator.maintenance.states import WindowState
from orchestrator.operations.execution import Context, transact
from orchestrator.tenants.principals import Actor, ActorKind

_SWEEPER = Actor(ActorKind.WORKER, "sweeper")


async def advance_window(context: Context, window_id: UUID) -> WindowState | None:
    """Start or end a window whose time has come, evaluated after its locks; return its new state, None: nothing was due."""

    async def work(tx: Transaction) -> WindowState | None:
        window = await store.lock_due(tx, window_id)
        if window is None:
            return None
        if window.state is WindowState.SCHEDULED:
            window = await store.start_window(tx, window_id)
            await note_change(tx, window, EventType.MAINTENANCE_STARTED, _SWEEPER, None)
        else:
            window = await store.close_window(tx, window, WindowState.ENDED)
            await note_change(tx, window, EventType.MAINTENANCE_ENDED, _SWEEPER, None)
        return window.state

    return await transact(context, work)


async def retire_windows(context: Context, retention_seconds: float, limit: int) -> int:
    """Delete at most `limit` windows past their retention, the earliest first; return how many."""

    async def work(tx: Transaction) -> int:
        return await store.delete_over(tx, retention_seconds, limit)

    return await transact(context, work)
