"""Refusals of wipe certificates."""

from __future__ import annotations

from uuid import UUID

from orchestrator.problems import Problem


class WipeCertificateMissing(Problem):
    """The allocation has no wipe certificate; `state` is the allocation's."""

    status, code, title, business = 404, "wipe_certificate_missing", "Wipe certificate missing", True

    @classmethod
    def of(cls, allocation_id: UUID, state: str, *, is_final: bool) -> WipeCertificateMissing:
        """The refusal for an allocation in this state."""
        why = (
            "its node or deploy system signed no statement, as one of an earlier version, or an operator stated the cleanup"
            if is_final
            else f"it is {state}; ask again when it is released"
        )
        return cls(f"allocation {allocation_id} has no wipe certificate: {why}", state=state)
