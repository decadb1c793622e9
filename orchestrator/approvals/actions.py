"""What an approved request does, by action: its check at the request, and its effect in the transaction of the approval.

The effect is that of the command without four eyes, with its guards: an object that has changed since the request is judged as
it is at the approval. The audit row of the action names the approver as its principal, and both operators in its detail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.stated_cleanup import Statement, clean_up, require_stuck
from orchestrator.allocations.subject import Subject
from orchestrator.approvals.rules import Person
from orchestrator.approvals.states import ApprovalAction
from orchestrator.approvals.store import Approval, Wanted, read_secret
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.store.operations import Operation
from orchestrator.problems import NotFound
from orchestrator.tenants.key_secrets import StoredSecret
from orchestrator.tenants.principals import Actor
from orchestrator.tenants.scopes import require_scopes
from orchestrator.tenants.store import api_keys, key_changes
from orchestrator.tenants.store.api_keys import KeyBounds, KeyWanted
from orchestrator.tenants.store.key_changes import Rotation, rotate_key


@dataclass(frozen=True, slots=True)
class Execution:
    """An approval under way: the request, its approver, and the bounds of the action."""

    approval: Approval
    approver: Person
    actor: Actor
    operation: Operation
    wait_seconds: float
    bounds: KeyBounds
    held: frozenset[str] | None
    """The scopes of the approver's key; None: not bounded."""

    @property
    def named(self) -> JsonObject:
        """Members of the audit row of the action: the approval and both operators."""
        return {
            "approval_id": str(self.approval.id),
            "requested_by": person_document(self.approval.requester),
            "approved_by": person_document(self.approver),
        }


def person_document(person: Person) -> JsonObject:
    """An operator in responses, events and the audit."""
    return {
        "principal_id": str(person.id), "role": person.role, "owner": person.owner, "break_glass": person.break_glass,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Requested:
    """What a request asks for, with the bounds of new keys and the scopes of the requester's key."""

    subject_id: UUID | None
    parameters: JsonMapping
    bounds: KeyBounds
    held: frozenset[str] | None


async def check_action(tx: Transaction, wanted: Wanted, bounds: KeyBounds, held: frozenset[str] | None) -> None:
    """Raise the refusal that the action would end with if it were approved now; `held`: the scopes of the requester's key."""
    await _CHECKS[wanted.action](tx, Requested(wanted.subject_id, wanted.parameters, bounds, held))


async def perform_action(tx: Transaction, execution: Execution) -> JsonObject:
    """Do what was requested, audited; return what the approval shows of it. Raises the action's own refusals."""
    return await _EFFECTS[execution.approval.action](tx, execution)


async def _stuck_allocation(tx: Transaction, allocation_id: UUID | None) -> Subject:
    subject = None if allocation_id is None else await lock_allocation(tx, allocation_id)
    if subject is None:
        raise NotFound(f"there is no allocation {allocation_id}")
    require_stuck(subject)
    return subject


async def _check_cleanup(tx: Transaction, requested: Requested) -> None:
    await _stuck_allocation(tx, requested.subject_id)


async def _check_creation(tx: Transaction, requested: Requested) -> None:
    require_scopes(requested.held, requested.parameters.get("scopes"))
    await _check_expiry(tx, requested)


async def _check_revocation(tx: Transaction, requested: Requested) -> None:
    assert requested.subject_id is not None
    await key_changes.read_key_tenant(tx, None, requested.subject_id)


async def _check_rotation(tx: Transaction, requested: Requested) -> None:
    assert requested.subject_id is not None
    await key_changes.lock_for_rotation(tx, None, requested.subject_id, requested.held)
    await _check_expiry(tx, requested)


async def _check_expiry(tx: Transaction, requested: Requested) -> None:
    expires_at = moment_of(requested.parameters["expires_at"])
    await api_keys.read_expiry(tx, expires_at, requested.bounds.lifetime_seconds_max)


async def _clean_up(tx: Transaction, execution: Execution) -> JsonObject:
    approval, operation = execution.approval, execution.operation
    subject = await _stuck_allocation(tx, approval.subject_id)
    reason: str = approval.parameters["reason"]
    statement = Statement(reason, execution.wait_seconds, operation.key, operation.request_id, execution.named)
    await clean_up(tx, subject, execution.actor, statement)
    return {"allocation_id": str(subject.id), "from_state": subject.state.value}


async def _create_key(tx: Transaction, execution: Execution) -> JsonObject:
    asked = execution.approval.parameters
    expires_at = await api_keys.read_expiry(tx, moment_of(asked["expires_at"]), execution.bounds.lifetime_seconds_max)
    # A request of the version before has no scopes.
    scopes = asked.get("scopes")
    require_scopes(execution.held, scopes)
    wanted = KeyWanted(asked["name"], asked["role"], None, expires_at, asked["owner"], asked["break_glass"], scopes)
    made = await api_keys.insert_api_key(tx, wanted, await _secret_of(tx, execution.approval), expires_at)
    detail = {**asked, "expires_at": made.expires_at, **execution.named}
    await _record(tx, execution, f"api-keys/{made.id}", detail)
    return {"key_id": str(made.id), "expires_at": made.expires_at}


async def _rotate_key(tx: Transaction, execution: Execution) -> JsonObject:
    approval = execution.approval
    assert approval.subject_id is not None
    asked = approval.parameters
    wanted = Rotation(asked["overlap_seconds"], moment_of(asked["expires_at"]), await _secret_of(tx, approval))
    made, replaced = await rotate_key(tx, None, approval.subject_id, wanted, execution.bounds, execution.held)
    detail = {
        "replaced_by": made.id, "prefix": made.prefix, "expires_at": made.expires_at, "overlap_ends_at": replaced,
        **execution.named,
    }  # fmt: skip
    await _record(tx, execution, approval.subject, detail)
    return {"key_id": str(made.id), "expires_at": made.expires_at, "replaced_expires_at": replaced}


async def _revoke_key(tx: Transaction, execution: Execution) -> JsonObject:
    approval = execution.approval
    assert approval.subject_id is not None
    stopped = await api_keys.revoke_api_key(tx, approval.subject_id)
    result = {"key_id": str(approval.subject_id), "webhooks_disabled": stopped}
    await _record(tx, execution, approval.subject, {"webhooks_disabled": stopped, **execution.named})
    return result


async def _secret_of(tx: Transaction, approval: Approval) -> StoredSecret:
    return StoredSecret(approval.parameters["prefix"], await read_secret(tx, approval.id))


async def _record(tx: Transaction, execution: Execution, subject: str, detail: JsonObject) -> None:
    action = execution.approval.action.value
    await audit.record(tx, execution.actor, action, subject, detail, execution.operation.request_id)


def moment_of(written: str | None) -> datetime | None:
    """A time of stored parameters."""
    return None if written is None else datetime.fromisoformat(written)


_Check = Callable[[Transaction, Requested], Awaitable[None]]
_CHECKS: Final[dict[ApprovalAction, _Check]] = {
    ApprovalAction.FORCE_CLEANUP: _check_cleanup,
    ApprovalAction.CREATE_KEY: _check_creation,
    ApprovalAction.REVOKE_KEY: _check_revocation,
    ApprovalAction.ROTATE_KEY: _check_rotation,
}
_EFFECTS: Final[dict[ApprovalAction, Callable[[Transaction, Execution], Awaitable[JsonObject]]]] = {
    ApprovalAction.FORCE_CLEANUP: _clean_up,
    ApprovalAction.CREATE_KEY: _create_key,
    ApprovalAction.REVOKE_KEY: _revoke_key,
    ApprovalAction.ROTATE_KEY: _rotate_key,
}
