"""Refusals of operations."""

from __future__ import annotations

from orchestrator.problems import Problem, QuotaExceeded


class OperationUnstorable(Problem):
    """There is no room for the operation, so no write begins whose outcome could not be stored."""


class OperationTableFull(OperationUnstorable):
    """The operations table is full, so no write begins whose outcome could not be stored."""

    status, code, title = 503, "operation_table_full", "Operation table full"
    retry_after_seconds = 60


class OperationQuotaExceeded(OperationUnstorable, QuotaExceeded):
    """The tenant's quota of operations is reached; unlike other quotas it leaves no record."""

    status, code, title, business = QuotaExceeded.status, QuotaExceeded.code, QuotaExceeded.title, False
