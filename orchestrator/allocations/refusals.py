"""Refusals of allocations alone."""

from __future__ import annotations

from typing import Self

from orchestrator.problems import Problem


class VerbInProgress(Problem):
    """Another verb of the allocation is in progress; `verb` names it."""

    status, code, title, business = 409, "verb_in_progress", "Verb in progress", True

    @classmethod
    def of(cls, verb: str) -> Self:
        """The refusal while `verb` is in progress."""
        return cls(
            f"the {verb} of this allocation is in progress; wait for its end, then send the request again", verb=verb
        )


class FaultReportsOpen(Problem):
    """As many faults of the allocation are reported as it may have open; they close at its release."""

    status, code, title, business = 409, "fault_reports_open", "Fault reports open", True

    @classmethod
    def at(cls, limit: int) -> Self:
        """The refusal at this bound."""
        return cls(f"{limit} faults of this allocation are reported already; release it, which closes them")


class ReplacementInProgress(Problem):
    """The allocation is being replaced."""

    status, code, title, business = 409, "replacement_in_progress", "Replacement in progress", True


class TooManyFaultReports(Problem):
    """The tenant has reported as many faults in the last day as the deployment allows."""

    status, code, title = 429, "too_many_fault_reports", "Too many fault reports"
    retry_after_seconds = 3_600

    @classmethod
    def at(cls, limit: int) -> Self:
        """The refusal at this bound."""
        return cls(
            f"{limit} faults were reported in the last 24 hours, which is the most; retry later or ask the operator"
        )
