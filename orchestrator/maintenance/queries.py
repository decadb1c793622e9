"""Reads of maintenance windows, and the plan of one."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.maintenance import rules, store
from orchestrator.maintenance.rules import Conflict, require_window
from orchestrator.maintenance.states import WindowState
from orchestrator.maintenance.store import Window
from orchestrator.reservations.resource_names import NamedResources


async def plan_window(
    database: Database, named: NamedResources, starts_at: datetime, ends_at: datetime
) -> list[Conflict]:
    """At most `CONFLICTS_MAX` claims in the way of a window, without any effect.

    Raises `ResourceNotFound`, `MaintenanceWindowInvalid`.
    """
    async with database.reading() as reading:
        require_window(starts_at, ends_at, await store.read_clock(reading))
        targets = await store.find_targets(reading, named)
        return (await store.find_conflicts(reading, targets, starts_at, ends_at))[: rules.CONFLICTS_MAX]


async def find_window(database: Database, window_id: UUID) -> Window:
    """One window. Raises `NotFound`."""
    async with database.reading() as reading:
        return await store.read_window(reading, window_id)


async def list_windows(database: Database, *, state: WindowState | None, after: UUID, limit: int) -> list[Window]:
    """Up to `limit` windows after this id, of all states if `state` is None."""
    async with database.reading() as reading:
        return await store.list_windows(reading, state, after, limit)


async def find_due_windows(database: Database, limit: int) -> list[UUID]:
    """Up to `limit` windows whose start or end has come, the earliest first."""
    async with database.reading() as reading:
        return await store.find_due(reading, limit)
