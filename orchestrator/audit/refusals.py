"""Refusals of lists of the audit."""

from __future__ import annotations

from orchestrator.problems import Problem


class AuditTruncated(Problem):
    """Rows after the named sequence are in the archive alone; `first_sequence` is the first one kept, after `hash_before`."""

    status, code, title = 410, "audit_truncated", "Audit truncated"
