"""SQL that changes what a tenant may change of an allocation: its name, its labels and its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy.exc

from berth.process.json_objects import JsonObject
from orchestrator.allocations.rules import NewEnd
from orchestrator.allocations.subject import Subject
from orchestrator.database.outcomes import RivalCommitted
from orchestrator.database.sqlstates import decode
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.placement.refusals import refusal_of_tenant
from orchestrator.problems import Problem
from orchestrator.reservations.refusals import ResourceBusy

_CHANGE = """
update allocations set name = coalesce(cast(:name as text), name), labels = coalesce(cast(:labels as jsonb), labels),
                       row_version = row_version + 1
where id = :id and (:succeeded or name is distinct from coalesce(cast(:name as text), name)
                    or labels <> coalesce(cast(:labels as jsonb), labels))
returning array_remove(array[
    case when old.name is distinct from new.name then 'name' end,
    case when old.labels <> new.labels then 'labels' end,
    case when :succeeded then 'ends_at' end
], null) as changed
"""
_LOCK_RIVALS = """
select due, nodes, resources from lock_overdue_rivals(:allocation_id, :tenant_id, cast(:ends_at as timestamptz))
"""
_SUCCEED = """
select succeed_claim(:claim_id, cast(:ends_at as timestamptz), :clock, cast(:due as uuid[]), cast(:nodes as uuid[]),
                     cast(:resources as text[]), cast(:units_seconds as float8), cast(:retention_seconds as float8))
"""


async def change_members(
    tx: Transaction, allocation_id: UUID, name: str | None, labels: Mapping[str, str] | None, *, succeeded: bool
) -> list[str]:
    """Change name and labels of a locked allocation; None leaves a member as it is. Return the members that changed.

    `succeeded`: its end changed before, in this transaction. If nothing differs, nothing is written and the row version
    stays.
    """
    values = {"id": allocation_id, "name": name, "labels": None if labels is None else json.dumps(dict(labels))}
    row = await tx.execute(_CHANGE, {**values, "succeeded": succeeded})
    changed: list[str] | None = row.scalar_one_or_none()
    return changed or []


@dataclass(frozen=True, slots=True)
class LockedRivals:
    """Overdue holds in the way of a later end, and the nodes and resources of their claims: all locked."""

    due: list[UUID]
    nodes: list[UUID]
    resources: list[str]


async def lock_overdue_rivals(
    tx: Transaction, allocation_id: UUID, tenant_id: UUID | None, end: NewEnd
) -> LockedRivals:
    """Lock the overdue holds that a later end would expire. Call it before `lock_allocation`: nodes are locked by id."""
    values = {"allocation_id": allocation_id, "tenant_id": tenant_id, "ends_at": end.at}
    return LockedRivals(**(await tx.execute(_LOCK_RIVALS, values)).one()._mapping)


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The claim is closed, and its successor has the new end and this `fence`."""

    fence: int


async def succeed_claim(
    tx: Transaction, subject: Subject, end: NewEnd, rivals: LockedRivals, units_seconds: float, retention_seconds: float
) -> Succeeded | Problem:
    """Close the claim of a locked allocation and insert its successor, which ends at `end`. A problem leaves nothing behind.

    Raises `TransactionConflict` if a concurrent transaction took the units, or a hold became overdue that is not locked.
    """
    values = {
        "claim_id": subject.claim_id,
        "ends_at": end.at,
        "clock": subject.clock,
        "due": rivals.due,
        "nodes": rivals.nodes,
        "resources": rivals.resources,
        "units_seconds": units_seconds,
        "retention_seconds": retention_seconds,
    }
    try:
        outcome: JsonObject = (await tx.execute(_SUCCEED, values)).scalar_one()
    except sqlalchemy.exc.DBAPIError as error:
        match decode(error):
            case RivalCommitted(sqlstate):
                raise TransactionConflict(sqlstate) from error
            case _:
                raise
    match outcome["outcome"]:
        case "succeeded":
            return Succeeded(outcome["fence"])
        case "busy":
            return ResourceBusy.in_window(outcome["conflicts"], outcome.get("since"))
        case "again":
            raise TransactionConflict("a hold became overdue between the locks")
        case word:
            return refusal_of_tenant(word)
