"""Change the name, the labels and the end of an allocation that is not in a final state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from orchestrator.allocations.rules import NewEnd, is_given_another_end
from orchestrator.allocations.states import FINAL_STATES
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.changing import (
    LockedRivals,
    Succeeded,
    change_members,
    lock_overdue_rivals,
    succeed_claim,
)
from orchestrator.allocations.store.missing import missing_allocation
from orchestrator.allocations.store.rows import allocation_body, read_allocation
from orchestrator.allocations.store.timeline import note
from orchestrator.allocations.subject import Subject
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.execution import Context, Done, Limits, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState, Problem
from orchestrator.tenants.principals import Actor, ActorKind
from orchestrator.times import rfc3339

NOTE = "updated"
_NO_RIVALS = LockedRivals([], [], [])


@dataclass(frozen=True, slots=True)
class Changes:
    """What a request changes; None leaves the member as it is. `labels` replaces all labels."""

    name: str | None = None
    labels: Mapping[str, str] | None = None
    end: NewEnd | None = None


async def update_allocation(
    context: Context,
    operation: Operation,
    actor: Actor,
    tenant_id: UUID,
    allocation_id: UUID,
    changes: Changes,
) -> Answer:
    """Return 200 with the allocation. Equal values change nothing and emit no event.

    Another end closes the claim and inserts its successor under a new fence; the tasks of the allocation stay valid, and its
    metering goes on. Refusals, stored with the key: `NotFound` for an unknown allocation or another tenant's; `Archived`;
    `InvalidState` for a released or failed one, and for another end of one that is being released or past its end;
    `WindowInvalid`; for a later end `ResourceBusy`, `Forbidden` and `BalanceDepleted`.
    """

    async def effect(tx: Transaction) -> Done:
        rivals = _NO_RIVALS
        if changes.end is not None:
            rivals = await lock_overdue_rivals(tx, allocation_id, tenant_id, changes.end)
        subject = await lock_allocation(tx, allocation_id, tenant_id)
        if subject is None:
            raise await missing_allocation(tx, allocation_id, tenant_id)
        if subject.state in FINAL_STATES:
            raise InvalidState(f"the allocation is {subject.state}; its record is final", state=subject.state)
        succeeded = await _change_end(tx, subject, changes.end, rivals, context.limits)
        changed = await change_members(tx, subject.id, changes.name, changes.labels, succeeded=succeeded is not None)
        row = await read_allocation(tx, allocation_id, None)
        assert row is not None, "a locked allocation can be read"
        if not changed:
            return Done(200, allocation_body(row), allocation_id, "noop")
        await _record(tx, operation, actor, subject, row, changed, succeeded)
        return Done(200, allocation_body(row), allocation_id)

    return await run_once(context, operation, effect, tenant_id)


async def _change_end(
    tx: Transaction, subject: Subject, end: NewEnd | None, rivals: LockedRivals, limits: Limits
) -> Succeeded | None:
    """Give the allocation its new end; None if it keeps the one that it has. Raises the refusal."""
    if end is None or not is_given_another_end(subject, end, limits.window_seconds_max):
        return None
    outcome = await succeed_claim(
        tx, subject, end, rivals, limits.units_seconds_max, limits.reservation_retention_seconds
    )
    if isinstance(outcome, Problem):
        raise outcome
    return outcome


async def _record(
    tx: Transaction,
    operation: Operation,
    actor: Actor,
    subject: Subject,
    row: Row[Any],
    changed: list[str],
    succeeded: Succeeded | None,
) -> None:
    """Write the note, the event and, for an operator, the audit record of the change."""
    detail = f"changed: {', '.join(changed)}"
    values = {"changed": changed, "name": row.name, "labels": row.labels}
    payload = {
        "allocation_id": str(subject.id), **values, "ends_at": rfc3339(row.ends_at), "row_version": row.row_version,
        "actor_kind": actor.kind.value, "fence": subject.fence,
    }  # fmt: skip
    if succeeded is not None:
        detail += f"; the end was {_written(subject.ends_at)} and is {_written(row.ends_at)}"
        values["ends_at"] = rfc3339(row.ends_at)
        payload |= {"judged_at": rfc3339(subject.clock), "claim_fence": succeeded.fence}
    await note(tx, subject.id, actor, NOTE, detail, subject.fence)
    event = Event(
        EventType.ALLOCATION_UPDATED, subject.name, subject.correlation_id, subject.tenant_id, payload, operation.key,
        operation.request_id,
    )  # fmt: skip
    await append_event(tx, event)
    if actor.kind is ActorKind.ADMIN:
        await audit.record(tx, actor, "allocation.update", subject.name, values, operation.request_id)


def _written(end: datetime | None) -> str:
    return "open" if end is None else rfc3339(end)
