"""Approvals: list, show, approve, reject and withdraw requests of operators (admin zone), and record one."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel

from berth.process.json_objects import JsonMapping
from orchestrator.approvals import queries as approvals
from orchestrator.approvals.changes import approval_document
from orchestrator.approvals.commands.decide import approve_request, reject_request, withdraw_request
from orchestrator.approvals.commands.request import ApprovalBounds, SealedKey, request_approval
from orchestrator.approvals.schemas import Approval, ApprovalQuery, Approve, Reject, RequestedApproval
from orchestrator.approvals.states import APPROVERS, ApprovalAction, ApprovalState
from orchestrator.approvals.store import Wanted
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.fields import Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES, Responses
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, identified_page, page_of
from orchestrator.http.services import Parts, Services
from orchestrator.http.writes import AdminWrite, Write, unsealed_response
from orchestrator.tenants.key_secrets import Secret
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, NO_TENANT
from orchestrator.tenants.store.api_keys import KeyBounds

router = APIRouter(prefix="/approvals", tags=["admin: approvals"], responses=PROBLEM_RESPONSES)
_DESCRIPTION: Final = "With `BERTH_FOUR_EYES`: nothing is done before a second operator approves the request"
REQUESTED: Final[Responses] = {202: {"model": Approval, "description": _DESCRIPTION}}
"""The response of an action that needs a second operator, for its route."""
REQUESTED_WITH_KEY: Final[Responses] = {202: {"model": RequestedApproval, "description": _DESCRIPTION}}
"""The same of an action that makes a key."""


@router.get("", response_model=Page[Approval])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[ApprovalQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Requests that need a second operator, oldest first, ended ones too."""
    after, limit = identified_page(query, "approvals")
    state = None if query.state is None else ApprovalState(query.state)
    found = await approvals.list_approvals(parts.context.database, state=state, after=after, limit=limit)
    page = page_of(found, query.limit, "approvals", lambda approval: approval.id)
    return json_response({**page, "items": [approval_document(approval) for approval in page["items"]]})


@router.get("/{approval_id}", response_model=Approval)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(approval_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """One request, and what became of it."""
    return json_response(approval_document(await approvals.find_approval(parts.context.database, approval_id)))


@router.post("/{approval_id}/approve", response_model=Approval)
@requires(tenant=NO_TENANT, operator=APPROVERS)
async def approve(approval_id: UUID, write: AdminWrite, body: Approve | None = None) -> Response:
    """Approve another operator's request: its action is done in the same transaction, under its own guards."""
    reason = None if body is None else body.reason
    answer = await approve_request(
        write.context, write.operation(body or Approve()), write.caller, approval_id, key_bounds_of(write.parts), reason
    )
    # The action may have ended a key.
    write.parts.credentials.forget()
    return answer_response(answer)


@router.post("/{approval_id}/reject", response_model=Approval)
@requires(tenant=NO_TENANT, operator=APPROVERS)
async def reject(approval_id: UUID, body: Reject, write: AdminWrite) -> Response:
    """Reject another operator's request."""
    return answer_response(
        await reject_request(write.context, write.operation(body), write.caller, approval_id, body.reason)
    )


@router.post("/{approval_id}/withdraw", response_model=Approval)
@requires(tenant=NO_TENANT, operator=APPROVERS)
async def withdraw(approval_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Withdraw a request of the caller."""
    return answer_response(await withdraw_request(write.context, write.operation(), write.caller, approval_id))


def key_bounds_of(parts: Services) -> KeyBounds:
    """Bounds of new keys, from the settings."""
    return KeyBounds(parts.settings.api_key_lifetime_seconds_max, parts.settings.tenant_api_keys_max)


async def request_second(
    write: Write,
    content: BaseModel | None,
    action: ApprovalAction,
    subject_id: UUID | None,
    parameters: JsonMapping,
) -> Response:
    """Record what the caller wants, for a second operator: 202 with the approval."""
    wanted = Wanted(action, subject_id, parameters)
    answer = await request_approval(
        write.context, write.operation(content), write.caller, wanted, _bounds_of(write.parts)
    )
    return answer_response(answer)


async def request_second_with_key(
    write: Write,
    content: BaseModel | None,
    action: ApprovalAction,
    subject_id: UUID | None,
    parameters: JsonMapping,
) -> Response:
    """As `request_second`, for an action that makes a key: the caller gets its secret now, valid when it is approved."""
    secret = Secret()
    wanted = Wanted(action, subject_id, {**parameters, "prefix": secret.prefix}, secret.stored.sha256)
    answer = await request_approval(
        write.context,
        write.operation(content),
        write.caller,
        wanted,
        _bounds_of(write.parts),
        SealedKey(secret, write.sealer()),
    )
    return unsealed_response(write, answer, "key")


def _bounds_of(parts: Services) -> ApprovalBounds:
    settings = parts.settings
    return ApprovalBounds(settings.approval_seconds, settings.approvals_max, key_bounds_of(parts))
