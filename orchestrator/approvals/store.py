"""SQL of approvals. The row's lock orders the decisions about a request; its deadline is evaluated after the lock."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.approvals.refusals import ApprovalPending, ApprovalTableFull
from orchestrator.approvals.rules import Person
from orchestrator.approvals.states import ApprovalAction, ApprovalState
from orchestrator.approvals.tables import approvals
from orchestrator.database.transactions import Reading, Transaction, TransactionConflict
from orchestrator.problems import InvalidState, NotFound


@dataclass(frozen=True, slots=True)
class Approval:
    """A request that needs a second operator, and what became of it. `decided_by`: the operator of its end."""

    id: UUID
    action: ApprovalAction
    subject_id: UUID | None
    parameters: JsonObject
    state: ApprovalState
    requester: Person
    requested_at: datetime
    decided_by: Person | None
    decision_reason: str | None
    ended_at: datetime | None
    result: JsonObject | None
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None

    @property
    def name(self) -> str:
        """The approval as an object of audit and log."""
        return f"approvals/{self.id}"

    @property
    def subject(self) -> str:
        """The object of the action; the kind alone where the action makes it."""
        return self.action.subject if self.subject_id is None else f"{self.action.subject}/{self.subject_id}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be done once it is approved. `secret_sha256`: of the key that the action makes."""

    action: ApprovalAction
    subject_id: UUID | None
    parameters: JsonMapping
    secret_sha256: bytes | None = None


_C = approvals.c
_READ = select(*(column for column in _C if column.name != "secret_hash"))
_COUNT_PENDING = "select count(*) from approvals where state = 'pending'"
_PENDING_OF = "select id from approvals where state = 'pending' and action = :action and subject_id = :subject_id"
_INSERT = """
insert into approvals (action, subject_id, parameters, secret_hash, requested_by, requested_role, requested_owner,
                       requested_break_glass, waits_until)
values (:action, :subject_id, cast(:parameters as jsonb), :secret_hash, :id, :role, :owner, :break_glass,
        clock_timestamp() + make_interval(secs => :seconds))
on conflict (action, subject_id) where state = 'pending' do nothing returning id
"""
_LOCK = "select from approvals where id = :id for no key update"
_IS_OVER = "select waits_until <= clock_timestamp() from approvals where id = :id"
_SECRET = "select secret_hash from approvals where id = :id"
_END = """
update approvals set state = :state, decided_by = :decided_by, decided_role = :role, decided_owner = :owner,
    decided_break_glass = :break_glass, decision_reason = :reason, result = cast(:result as jsonb), secret_hash = null,
    ended_at = clock_timestamp(), waits_for = null, waits_since = null, waits_until = null
where id = :id and state = 'pending'
"""
_OVERDUE = """
select id from approvals where state = 'pending' and waits_until <= clock_timestamp() order by waits_until, id limit :limit
"""
_RETIRE = """
with ended as (
    select id from approvals where state <> 'pending' and ended_at < clock_timestamp() - make_interval(secs => :seconds)
    order by ended_at, id limit :limit for update skip locked
)
delete from approvals where id in (select id from ended)
"""
# Operators' keys that rotations connect, in both directions.
_LINE = """
with recursive line (id) as (
    select cast(:id as uuid)
    union
    select k.id from line l join api_keys a on a.id = l.id
        join api_keys k on k.tenant_id is null and (k.id = a.replaced_by or k.replaced_by = a.id)
)
select id from line
"""
_OTHERS = """
select count(*) from api_keys
where tenant_id is null and not break_glass and access_role = any(:roles) and revoked_at is null and replaced_by is null
  and (expires_at is null or expires_at > clock_timestamp())
  and id <> all(cast(:ids as uuid[])) and (owner is null or lower(owner) <> all(cast(:owners as text[])))
"""
_IS_REVOKED = "select exists(select from api_keys where id = :id and revoked_at is not null)"


async def insert_pending(
    tx: Transaction, wanted: Wanted, requester: Person, *, seconds: float, pending_max: int
) -> Approval:
    """A request that waits for its approval, for this long. Raises `ApprovalPending`, `ApprovalTableFull`."""
    waiting: int = (await tx.execute(_COUNT_PENDING, {})).scalar_one()
    if waiting >= pending_max:
        raise ApprovalTableFull.at(pending_max)
    values = {
        "action": wanted.action.value, "subject_id": wanted.subject_id, "parameters": json.dumps(wanted.parameters, default=str),
        "secret_hash": wanted.secret_sha256, "id": requester.id, "role": requester.role, "owner": requester.owner,
        "break_glass": requester.break_glass, "seconds": seconds,
    }  # fmt: skip
    made = (await tx.execute(_INSERT, values)).first()
    if made is None:
        pending = await find_pending_of(tx, wanted.action, wanted.subject_id)
        if pending is None:
            raise TransactionConflict("the request that waited for this object has ended meanwhile")
        raise ApprovalPending.of(pending, f"{wanted.action.subject}/{wanted.subject_id}")
    return await read_approval(tx, made.id)


async def find_pending_of(tx: Transaction, action: ApprovalAction, subject_id: UUID | None) -> UUID | None:
    """The request that waits for the approval of this action on this object, if there is one."""
    found = (await tx.execute(_PENDING_OF, {"action": action.value, "subject_id": subject_id})).first()
    return None if found is None else found.id


async def read_approval(reading: Reading, approval_id: UUID) -> Approval:
    """One approval. Raises `NotFound`."""
    row = (await reading.execute(_READ.where(_C.id == approval_id))).first()
    if row is None:
        raise NotFound(f"there is no approval {approval_id}")
    return _approval(row._mapping)


async def list_approvals(reading: Reading, state: ApprovalState | None, after: UUID, limit: int) -> list[Approval]:
    """Up to `limit` approvals after this id, in the order of their requests; of all states if `state` is None."""
    page = _READ.where(_C.id > after).order_by(_C.id).limit(limit)
    if state is not None:
        page = page.where(_C.state == state.value)
    return [_approval(row._mapping) for row in await reading.execute(page)]


async def lock_pending(tx: Transaction, approval_id: UUID) -> Approval:
    """Lock a request that still waits. Raises `NotFound`, `InvalidState` if it has ended or its deadline has passed."""
    await tx.execute(_LOCK, {"id": approval_id})
    approval = await read_approval(tx, approval_id)
    state = approval.state
    if state is ApprovalState.PENDING and (await tx.execute(_IS_OVER, {"id": approval_id})).scalar_one():
        state = ApprovalState.EXPIRED
    if state is not ApprovalState.PENDING:
        raise InvalidState(f"the approval is {state}; request the action anew if it is still wanted", state=state)
    return approval


async def lock_overdue(tx: Transaction, approval_id: UUID) -> Approval | None:
    """Lock a request whose deadline has passed; None if it has ended, or has no such deadline."""
    await tx.execute(_LOCK, {"id": approval_id})
    approval = await read_approval(tx, approval_id)
    if approval.state is not ApprovalState.PENDING:
        return None
    return approval if (await tx.execute(_IS_OVER, {"id": approval_id})).scalar_one() else None


async def read_secret(tx: Transaction, approval_id: UUID) -> bytes:
    """The SHA-256 of the key that a locked, pending request makes."""
    found: bytes | None = (await tx.execute(_SECRET, {"id": approval_id})).scalar_one()
    assert found is not None, "a request that makes a key stores its hash while it waits"
    return bytes(found)


async def end_approval(
    tx: Transaction,
    approval_id: UUID,
    state: ApprovalState,
    person: Person | None,
    *,
    reason: str | None = None,
    result: JsonMapping | None = None,
) -> Approval:
    """End the wait of a locked, pending request; return it as it is from now on."""
    values = {
        "id": approval_id, "state": state.value, "reason": reason,
        "decided_by": None if person is None else person.id, "role": None if person is None else person.role,
        "owner": None if person is None else person.owner, "break_glass": None if person is None else person.break_glass,
        "result": None if result is None else json.dumps(result, default=str),
    }  # fmt: skip
    ended = await tx.execute(_END, values)
    assert ended.rowcount == 1, "a locked, pending request stays pending"
    return await read_approval(tx, approval_id)


async def key_line(tx: Transaction, key_id: UUID) -> frozenset[UUID]:
    """The ids of the operators' keys that rotations connect with this principal's, its own included."""
    return frozenset(row.id for row in await tx.execute(_LINE, {"id": key_id}))


async def count_other_operators(
    tx: Transaction, roles: Collection[str], ids: Collection[UUID], owners: Collection[str]
) -> int:
    """The live operators' keys with one of these roles, beside these ids and owners; break-glass keys do not count."""
    values = {"roles": list(roles), "ids": list(ids), "owners": [owner.casefold() for owner in owners]}
    found: int = (await tx.execute(_OTHERS, values)).scalar_one()
    return found


async def is_revoked(tx: Transaction, principal_id: UUID) -> bool:
    """Whether the principal is an API key that was revoked."""
    found: bool = (await tx.execute(_IS_REVOKED, {"id": principal_id})).scalar_one()
    return found


async def find_overdue(reading: Reading, limit: int) -> list[UUID]:
    """Up to `limit` requests past their deadline, the earliest first."""
    return [row.id for row in await reading.execute(_OVERDUE, {"limit": limit})]


async def delete_ended(tx: Transaction, retention_seconds: float, limit: int) -> int:
    """Delete up to `limit` approvals that ended so long ago, the earliest first; return how many."""
    return (await tx.execute(_RETIRE, {"seconds": retention_seconds, "limit": limit})).rowcount


def _approval(row: Mapping[Any, Any]) -> Approval:
    decided_by = row["decided_by"]
    return Approval(
        id=row["id"],
        action=ApprovalAction(row["action"]),
        subject_id=row["subject_id"],
        parameters=row["parameters"],
        state=ApprovalState(row["state"]),
        requester=Person(
            row["requested_by"], row["requested_role"], row["requested_owner"], row["requested_break_glass"]
        ),
        requested_at=row["requested_at"],
        decided_by=None
        if decided_by is None
        else Person(decided_by, row["decided_role"], row["decided_owner"], row["decided_break_glass"]),
        decision_reason=row["decision_reason"],
        ended_at=row["ended_at"],
        result=row["result"],
        waits_for=row["waits_for"],
        waits_since=row["waits_since"],
        waits_until=row["waits_until"],
    )
