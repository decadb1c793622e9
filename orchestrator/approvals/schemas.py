"""Approvals in requests and responses."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, Field

from berth.process.json_objects import JsonObject
from orchestrator.http.fields import Request, Sentence
from orchestrator.http.paging import PageQuery

Action = Literal["allocation.force_cleanup", "api_key.create", "api_key.revoke", "api_key.rotate"]
State = Literal["pending", "approved", "rejected", "withdrawn", "expired"]


class Approve(Request):
    """An operator's approval of another's request; audited."""

    reason: Sentence | None = None


class Reject(Request):
    """An operator's reason to reject another's request; audited."""

    reason: Sentence


class ApprovalPerson(BaseModel):
    """The operator of a request or a decision. `owner`: of its API key, or the subject of its token."""

    principal_id: UUID
    role: str
    owner: str | None
    break_glass: bool


class Approval(BaseModel):
    """A request that takes effect when a second operator approves it, and what became of it."""

    approval_id: UUID
    action: Action
    subject: str = Field(description="the object of the action; the kind alone where the action makes it")
    parameters: JsonObject = Field(description="what the action does beyond its object")
    state: State
    roles_required: list[str] = Field(description="the operators' roles that approve or reject it")
    requested_by: ApprovalPerson
    requested_at: datetime
    decided_by: ApprovalPerson | None = Field(description="the operator of the approval, rejection or withdrawal")
    decision_reason: str | None
    ended_at: datetime | None
    result: JsonObject | None = Field(description="what the action made or changed; null unless it is approved")
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None = Field(description="the request expires then; null: it has ended")


class RequestedApproval(Approval):
    """The response to a request that makes an API key, and waits for its approval."""

    key: str = Field(description="the secret of the key, shown once; valid when the request is approved")


class ApprovalQuery(PageQuery):
    """Which approvals: all, or those in a state."""

    state: State | None = None
