"""Refusals of approvals."""

from __future__ import annotations

from typing import Self
from uuid import UUID

from orchestrator.problems import Forbidden, Problem


class SecondOperatorRequired(Forbidden):
    """The caller is the requester, or a break-glass key while another operator can decide."""

    code, title = "second_operator_required", "Second operator required"


class ApprovalPending(Problem):
    """The same action on the same object waits for its approval; `approval_id` names it."""

    status, code, title, business = 409, "approval_pending", "Approval pending", True

    @classmethod
    def of(cls, approval_id: UUID, subject: str) -> Self:
        """The refusal of a second request for the object."""
        return cls(
            f"a request to do this to {subject} waits for its approval already; have {approval_id} approved, or withdraw it",
            approval_id=str(approval_id),
        )


class ApprovalTableFull(Problem):
    """As many requests wait for their approval as the deployment allows."""

    status, code, title = 503, "approval_table_full", "Approval table full"
    retry_after_seconds = 60

    @classmethod
    def at(cls, limit: int) -> Self:
        """The refusal at this bound."""
        return cls(f"{limit:,} requests wait for their approval already; approve, reject or withdraw some")
