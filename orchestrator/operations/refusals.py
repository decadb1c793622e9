"""Refusals of operations."""

from __future__ import annotations

from orchestrator.problems import Problem


class OperationTableFull(Problem):
    """The operations table is full, so no write begins whose outcome could not be stored."""

    status, code, title = 503, "operation_table_full", "Operation table full"
    retry_after_seconds = 60
