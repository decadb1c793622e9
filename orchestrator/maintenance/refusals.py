"""Refusals of maintenance windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from orchestrator.problems import Problem


class MaintenanceConflict(Problem):
    """Claims in the window refuse it; `conflicts` lists them."""

    status, code, title, business = 409, "maintenance_conflict", "Maintenance conflict", True

    @classmethod
    def of(cls, conflicts: Sequence[dict[str, Any]]) -> Self:
        """The refusal that names these claims."""
        return cls(
            f"{len(conflicts)} claims are in the way of the window; end or move them, choose another time,"
            " or let the window notify allocations",
            conflicts=list(conflicts),
        )

    @classmethod
    def more_than(cls, limit: int, conflicts: Sequence[dict[str, Any]]) -> Self:
        """The refusal of a window with more claims in its way than a commit resolves."""
        return cls(
            f"more than {limit} claims are in the way of the window; commit fewer nodes or a shorter time at once",
            conflicts=list(conflicts),
        )


class MaintenanceWindowInvalid(Problem):
    """The window is over, reversed, too long or too far away."""

    status, code, title, business = 422, "maintenance_window_invalid", "Maintenance window invalid", True


class MaintenanceTableFull(Problem):
    """As many maintenance windows are scheduled or active as the deployment allows."""

    status, code, title = 503, "maintenance_table_full", "Maintenance table full"
    retry_after_seconds = 60

    @classmethod
    def at(cls, limit: int) -> Self:
        """The refusal at this bound."""
        return cls(f"{limit:,} maintenance windows are scheduled or active already; cancel or end some")
