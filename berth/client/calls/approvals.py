"""Approvals, one function per path (docs/reference/http-api.md). All raise `Forbidden` for tenant keys."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from berth.client.approvals import Approval
from berth.client.calls.call import Call, read, read_page, write
from berth.client.models import Page

APPROVALS = "/api/v1/admin/approvals"
State = Literal["pending", "approved", "rejected", "withdrawn", "expired"]


def list_approvals(
    *, state: State | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Approval]]:
    """Requests that need a second operator, oldest first; of one state, or all."""
    return read_page(APPROVALS, Approval, state=state, limit=limit, cursor=cursor)


def get_approval(approval_id: UUID) -> Call[Approval]:
    """One request, and what became of it. Raises `NotFound`."""
    return read(f"{APPROVALS}/{approval_id}", Approval)


def approve_request(
    approval_id: UUID, *, reason: str | None = None, idempotency_key: str | None = None
) -> Call[Approval]:
    """Approve another operator's request; its action is done at once.

    Raises `SecondOperatorRequired`, `InvalidState` if the request does not wait any more, and the refusals of the action.
    """
    return write("POST", f"{APPROVALS}/{approval_id}/approve", Approval, {"reason": reason}, idempotency_key)


def reject_request(approval_id: UUID, *, reason: str, idempotency_key: str | None = None) -> Call[Approval]:
    """Reject another operator's request. Raises `SecondOperatorRequired`, `InvalidState`."""
    return write("POST", f"{APPROVALS}/{approval_id}/reject", Approval, {"reason": reason}, idempotency_key)


def withdraw_request(approval_id: UUID, *, idempotency_key: str | None = None) -> Call[Approval]:
    """Withdraw a request of the caller. Raises `Forbidden` for another operator's, `InvalidState`."""
    return write("POST", f"{APPROVALS}/{approval_id}/withdraw", Approval, None, idempotency_key)
