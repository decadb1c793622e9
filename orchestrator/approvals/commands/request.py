"""Record a request that takes effect when a second operator approves it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.approvals.actions import check_action
from orchestrator.approvals.changes import approval_document, note_change
from orchestrator.approvals.rules import Person
from orchestrator.approvals.states import ApprovalState
from orchestrator.approvals.store import (
    Wanted,
    end_approval,
    find_pending_of,
    insert_pending,
    lock_overdue,
)
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import EventType
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.sealing import Sealer
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.key_secrets import Secret
from orchestrator.tenants.principals import Actor, ActorKind, Principal
from orchestrator.tenants.store.api_keys import KeyBounds


@dataclass(frozen=True, slots=True)
class ApprovalBounds:
    """How long a request waits, how many may wait, and the bounds of new keys."""

    seconds: float
    pending_max: int
    keys: KeyBounds


@dataclass(frozen=True, slots=True)
class SealedKey:
    """The text of a key that an approval makes, and what seals it for the caller."""

    secret: Secret
    sealer: Sealer


async def request_approval(
    context: Context,
    operation: Operation,
    caller: Principal,
    wanted: Wanted,
    bounds: ApprovalBounds,
    key: SealedKey | None = None,
) -> Answer:
    """202 with the approval, and with `key` its member `key`, sealed for the caller: it is valid once it is approved.

    Refusals: `ApprovalPending` if the action waits for the object already, `ApprovalTableFull`, and those that the action
    would end with now.
    """

    async def effect(tx: Transaction) -> Done:
        if wanted.subject_id is not None:
            await _expire_overdue(tx, wanted)
        person = Person(caller.id, caller.role, caller.owner, caller.break_glass)
        # Before the object's locks, in the order of an approval: that of the request comes first.
        approval = await insert_pending(tx, wanted, person, seconds=bounds.seconds, pending_max=bounds.pending_max)
        await check_action(tx, wanted, bounds.keys, caller.scopes)
        await note_change(tx, approval, EventType.APPROVAL_REQUESTED, caller.actor, operation)
        shown = {} if key is None else {"key": key.sealer.seal(key.secret.key)}
        return Done(202, {**approval_document(approval), **shown}, approval.id)

    return await run_once(context, operation, effect, None)


async def _expire_overdue(tx: Transaction, wanted: Wanted) -> None:
    """End a request for the same object whose deadline has passed before a sweeper comes."""
    pending = await find_pending_of(tx, wanted.action, wanted.subject_id)
    overdue = None if pending is None else await lock_overdue(tx, pending)
    if overdue is not None:
        ended = await end_approval(tx, overdue.id, ApprovalState.EXPIRED, None)
        await note_change(tx, ended, EventType.APPROVAL_EXPIRED, Actor(ActorKind.SYSTEM, "approvals"), None)
