"""Refusals of maintenance windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from berth.process.json_objects import JsonObject
from orchestrator.problems import Problem


class MaintenanceConflict(Problem):
    """Claims in the window refuse it; `conflicts` lists them."""

    status, code, title, business = 409, "maintenance_conflict", "Maintenance conflict", True

    @classmethod
    def of(cls, conflicts: Sequence[JsonObject]) -> Self:
        """The refusal that names these claims."""
        counted, them = ("1 claim is", "it") if len(conflicts) == 1 else (f"{len(conflicts)} claims are", "them")
        return cls(
            f"{counted} in the way of the window; end or move {them}, choose another time, or let the window notify allocations",
            conflicts=list(conflicts),
        )

    @classmethod
    def more_than(cls, limit: int, conflicts: Sequence[JsonObject]) -> Self:
        """The refusal of a window with more claims in its way than a commit resolves."""
        return cls(
            f"more than {limit} claims are in the way of the window; commit fewer nodes or a shorter time at once",
            conflicts=list(conflicts),
        )


class MaintenanceWindowInvalid(Problem):
    """The window is over, reversed, too long or too far away."""

    status, code, title, business = 422, "maintenance_window_invalid", "Maintenance window invalid", True


class MaintenanceTaskInvalid(Problem):
    """The task of the window is not whole, does not fit into the window, or may not run on parts of a node."""

    status, code, title, business = 422, "maintenance_task_invalid", "Maintenance task invalid", True


class MaintenanceTaskUnsupported(Problem):
    """Nodes of the window cannot run its task; `nodes` says which and why."""

    status, code, title, business = 409, "maintenance_task_unsupported", "Maintenance task not supported", True

    @classmethod
    def of(cls, kind: str, reasons: Mapping[str, str]) -> Self:
        """The refusal of a task that these nodes cannot run; `reasons` by their ids."""
        first = next(iter(reasons))
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return cls(
            f"node {first}{more} cannot run the task {kind}: {reasons[first]}; leave it out of the window, or commit the window"
            " without a task",
            nodes=[{"node_id": node_id, "reason": reason} for node_id, reason in reasons.items()],
        )


class MaintenanceTableFull(Problem):
    """As many maintenance windows are scheduled or active as the deployment allows."""

    status, code, title = 503, "maintenance_table_full", "Maintenance table full"
    retry_after_seconds = 60

    @classmethod
    def at(cls, limit: int) -> Self:
        """The refusal at this bound."""
        return cls(f"{limit:,} maintenance windows are scheduled or active already; cancel or end some")
