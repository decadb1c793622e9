"""Approve, reject and withdraw a request that needs a second operator."""

from __future__ import annotations

from uuid import UUID

from orchestrator.approvals.actions import Execution, perform_action
from orchestrator.approvals.changes import approval_document, note_change
from orchestrator.approvals.rules import Person, are_same, require_second
from orchestrator.approvals.states import ROLES, ApprovalState
from orchestrator.approvals.store import (
    Approval,
    count_other_operators,
    end_approval,
    is_revoked,
    key_line,
    lock_pending,
)
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import EventType
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import Forbidden, InvalidState, RoleRequired
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.store.api_keys import KeyBounds


async def approve_request(
    context: Context, operation: Operation, caller: Principal, approval_id: UUID, bounds: KeyBounds, reason: str | None
) -> Answer:
    """200 with the approval; the action is done in the same transaction, by the caller and under its own guards.

    Refusals: `NotFound`; `InvalidState` if the request does not wait any more, or the action is not possible any more (the
    request then waits on); `RoleRequired`; `SecondOperatorRequired`; those of the action.
    """

    async def effect(tx: Transaction) -> Done:
        approval = await lock_pending(tx, approval_id)
        approver = _person(caller)
        await _require_approver(tx, approval, approver)
        execution = Execution(
            approval, approver, caller.actor, operation, context.limits.requested_seconds_max, bounds, caller.scopes
        )
        result = await perform_action(tx, execution)
        ended = await end_approval(tx, approval_id, ApprovalState.APPROVED, approver, reason=reason, result=result)
        await note_change(tx, ended, EventType.APPROVAL_APPROVED, caller.actor, operation)
        return Done(200, approval_document(ended), approval_id)

    return await run_once(context, operation, effect, None)


async def reject_request(
    context: Context, operation: Operation, caller: Principal, approval_id: UUID, reason: str
) -> Answer:
    """200 with the approval; nothing else is done. Refusals as of `approve_request`, except those of the action."""

    async def effect(tx: Transaction) -> Done:
        approval = await lock_pending(tx, approval_id)
        _require_role(approval, caller)
        person = _person(caller)
        require_second(approval.requester, person, await key_line(tx, approval.requester.id), others=0)
        ended = await end_approval(tx, approval_id, ApprovalState.REJECTED, person, reason=reason)
        await note_change(tx, ended, EventType.APPROVAL_REJECTED, caller.actor, operation)
        return Done(200, approval_document(ended), approval_id)

    return await run_once(context, operation, effect, None)


async def withdraw_request(context: Context, operation: Operation, caller: Principal, approval_id: UUID) -> Answer:
    """200 with the approval; nothing else is done. Raises `Forbidden` for anyone but the requester."""

    async def effect(tx: Transaction) -> Done:
        approval = await lock_pending(tx, approval_id)
        person = _person(caller)
        if not are_same(approval.requester, person, await key_line(tx, approval.requester.id)):
            raise Forbidden("another operator requested this; reject it instead")
        ended = await end_approval(tx, approval_id, ApprovalState.WITHDRAWN, person)
        await note_change(tx, ended, EventType.APPROVAL_WITHDRAWN, caller.actor, operation)
        return Done(200, approval_document(ended), approval_id)

    return await run_once(context, operation, effect, None)


async def _require_approver(tx: Transaction, approval: Approval, approver: Person) -> None:
    """Raise the refusal if the caller may not approve this request, or its requester may not have it executed any more."""
    requester, roles = approval.requester, ROLES[approval.action]
    if approver.role not in roles:
        raise RoleRequired.of(approver.role, roles)
    line = await key_line(tx, requester.id)
    others = 0
    if requester.break_glass or approver.break_glass:
        ids = line | await key_line(tx, approver.id)
        owners = [owner for owner in (requester.owner, approver.owner) if owner is not None]
        others = await count_other_operators(tx, roles, ids, owners)
    require_second(requester, approver, line, others=others)
    if await is_revoked(tx, requester.id):
        raise InvalidState(
            f"the key {requester.id} that requested this was revoked; reject it, and request it anew if it is wanted",
            state=approval.state,
        )


def _require_role(approval: Approval, caller: Principal) -> None:
    roles = ROLES[approval.action]
    if caller.role not in roles:
        raise RoleRequired.of(caller.role, roles)


def _person(caller: Principal) -> Person:
    return Person(caller.id, caller.role, caller.owner, caller.break_glass)
