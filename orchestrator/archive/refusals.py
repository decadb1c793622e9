"""Refusals about objects that are in the archive alone."""

from __future__ import annotations

from orchestrator.problems import Problem


class Archived(Problem):
    """The allocation ended, and left the database for the archive at `archived_at`; operators see its `segment` too."""

    status, code, title, business = 410, "archived", "Archived", True
