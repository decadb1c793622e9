"""Refusals of nodes."""

from __future__ import annotations

from orchestrator.problems import Problem


class DriverRefused(Problem):
    """The node's driver may not be used here, or is not that of its pool; the node does not come online."""

    status, code, title = 409, "driver_refused", "Driver refused"
