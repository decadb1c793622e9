"""Events and audit rows of approvals, and how a response shows one."""

from __future__ import annotations

from uuid import uuid4

from berth.process.json_objects import JsonObject
from orchestrator.approvals.actions import person_document
from orchestrator.approvals.states import ROLES
from orchestrator.approvals.store import Approval
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.store.operations import Operation
from orchestrator.tenants.principals import Actor

AUDITED = {
    EventType.APPROVAL_REQUESTED: "approval.request",
    EventType.APPROVAL_APPROVED: "approval.approve",
    EventType.APPROVAL_REJECTED: "approval.reject",
    EventType.APPROVAL_WITHDRAWN: "approval.withdraw",
    EventType.APPROVAL_EXPIRED: "approval.expire",
}
"""The audit's action of each event."""


def approval_document(approval: Approval) -> JsonObject:
    """An approval as responses show it."""
    return {
        "approval_id": approval.id,
        "action": approval.action.value,
        "subject": approval.subject,
        "parameters": approval.parameters,
        "state": approval.state.value,
        "roles_required": sorted(ROLES[approval.action]),
        "requested_by": person_document(approval.requester),
        "requested_at": approval.requested_at,
        "decided_by": None if approval.decided_by is None else person_document(approval.decided_by),
        "decision_reason": approval.decision_reason,
        "ended_at": approval.ended_at,
        "result": approval.result,
        "waits_for": approval.waits_for,
        "waits_since": approval.waits_since,
        "waits_until": approval.waits_until,
    }


async def note_change(
    tx: Transaction, approval: Approval, happened: EventType, actor: Actor, operation: Operation | None
) -> None:
    """Write the event and the audit row of a change of an approval, in the transaction of the change."""
    decided_by = None if approval.decided_by is None else person_document(approval.decided_by)
    shown = {
        "action": approval.action.value, "subject": approval.subject, "requested_by": person_document(approval.requester),
        "decided_by": decided_by, "reason": approval.decision_reason,
    }  # fmt: skip
    waits_until = None if approval.waits_until is None else approval.waits_until.isoformat()
    request_id = None if operation is None else operation.request_id
    event = Event(
        happened,
        subject=approval.name,
        correlation_id=uuid4(),
        tenant_id=None,
        payload={"approval_id": str(approval.id), "waits_until": waits_until, **shown},
        operation_key=None if operation is None else operation.key,
        request_id=request_id,
    )
    await append_event(tx, event)
    await audit.record(tx, actor, AUDITED[happened], approval.name, shown, request_id)
