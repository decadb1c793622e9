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
