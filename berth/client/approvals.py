"""Approvals of a second operator: what a request for one looks like, and the errors about them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from berth.client.errors import Forbidden, Overloaded, Refused
from berth.client.models import Answer
from berth.process.json_objects import JsonObject


class ApprovalPerson(Answer):
    """The operator of a request or a decision. `owner`: of its API key, or the subject of its token."""

    principal_id: UUID
    role: str
    owner: str | None = None
    break_glass: bool = False


class Approval(Answer):
    """A request that takes effect when a second operator approves it, and what became of it."""

    approval_id: UUID
    action: str
    subject: str
    parameters: JsonObject
    state: str
    roles_required: list[str]
    requested_by: ApprovalPerson
    requested_at: datetime
    decided_by: ApprovalPerson | None = None
    decision_reason: str | None = None
    ended_at: datetime | None = None
    result: JsonObject | None = None
    waits_for: str | None = None
    waits_since: datetime | None = None
    waits_until: datetime | None = None


class RequestedApproval(Approval):
    """The approval as its request returns it. `key`: of a request that makes an API key, its secret, shown once."""

    key: str | None = None


class ApprovalRequested(Refused):
    """Not done yet: the deployment needs a second operator for this (four eyes), and the request is recorded.

    `approval` names it, its deadline and what it does; a repetition with the same key raises this again.
    """

    codes = ("approval_requested",)

    def __init__(self, approval: RequestedApproval) -> None:
        super().__init__(
            f"a second operator must approve this before it is done: {approval.approval_id}",
            code="approval_requested",
            status=202,
            extra={"approval_id": str(approval.approval_id)},
        )
        self.approval = approval


class ApprovalPending(Refused):
    """The same action on the same object waits for its approval; `extra["approval_id"]` names the request."""

    codes = ("approval_pending",)


class SecondOperatorRequired(Forbidden):
    """The caller requested this, or has a break-glass key while another operator can decide."""

    codes = ("second_operator_required",)


class ApprovalTableFull(Overloaded):
    """As many requests wait for their approval as the deployment allows."""

    codes = ("approval_table_full",)
