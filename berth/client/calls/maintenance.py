"""Maintenance windows, one function per path (docs/reference/http-api.md). All raise `Forbidden` for tenant keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, write
from berth.client.maintenance import MaintenancePlan, MaintenanceWindow
from berth.client.models import Page
from berth.process.json_objects import JsonMapping

MAINTENANCE = "/api/v1/admin/maintenance"
State = Literal["scheduled", "active", "ended", "cancelled"]


def plan_maintenance(*, resources: Sequence[str], starts_at: datetime, ends_at: datetime) -> Call[MaintenancePlan]:
    """The claims in the way of a window; changes nothing. Raises `ResourceNotFound`, `MaintenanceWindowInvalid`."""
    window = {"starts_at": starts_at.isoformat(), "ends_at": ends_at.isoformat()}
    return read(f"{MAINTENANCE}/plan", MaintenancePlan, resources=list(resources), **window)


def commit_maintenance(
    *,
    resources: Sequence[str],
    starts_at: datetime,
    ends_at: datetime,
    reason: str,
    allocations: Literal["notify", "refuse"] | None = None,
    reservations: Literal["move", "refuse"] | None = None,
    task: JsonMapping | None = None,
    idempotency_key: str | None = None,
) -> Call[MaintenanceWindow]:
    """Commit a window, which claims its units.

    Raises `ResourceNotFound`, `MaintenanceWindowInvalid`, `MaintenanceConflict`, `MaintenanceTableFull`,
    `MaintenanceTaskInvalid`, `MaintenanceTaskUnsupported`. `task`: `kind`, of the kind `plugin` also `plugin`, of the kind
    `firmware` also `firmware` (`image_url`, `sha256`, `targets`, `version`, and if wanted `restart`), and if wanted
    `timeout_seconds`.
    """
    body = {
        "resources": list(resources), "starts_at": starts_at.isoformat(), "ends_at": ends_at.isoformat(),
        "reason": reason, "allocations": allocations, "reservations": reservations,
        "task": None if task is None else dict(task),
    }  # fmt: skip
    return write("POST", MAINTENANCE, MaintenanceWindow, body, idempotency_key)


def list_maintenance(
    *, state: State | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[MaintenanceWindow]]:
    """Windows in the order of their commits; of one state, or all."""
    return read_page(MAINTENANCE, MaintenanceWindow, state=state, limit=limit, cursor=cursor)


def get_maintenance(window_id: UUID) -> Call[MaintenanceWindow]:
    """One window. Raises `NotFound`."""
    return read(f"{MAINTENANCE}/{window_id}", MaintenanceWindow)


def cancel_maintenance(window_id: UUID, *, idempotency_key: str | None = None) -> Call[MaintenanceWindow]:
    """Cancel a scheduled window. Raises `NotFound`, `InvalidState`."""
    return write("POST", f"{MAINTENANCE}/{window_id}/cancel", MaintenanceWindow, None, idempotency_key)


def end_maintenance(window_id: UUID, *, idempotency_key: str | None = None) -> Call[MaintenanceWindow]:
    """End an active window before its time. Raises `NotFound`, `InvalidState`."""
    return write("POST", f"{MAINTENANCE}/{window_id}/end", MaintenanceWindow, None, idempotency_key)
