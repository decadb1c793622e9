"""Reports of faults by tenants, and the replacement of a faulty allocation.

A report marks the units: the release that frees them puts them into quarantine. A replacement is placed in the transaction of
the report. The sweeper releases the faulty allocation once the replacement is active, or ends the wait otherwise (P9).
"""

from __future__ import annotations

from uuid import UUID, uuid4

from orchestrator.allocations.fault_documents import fault_document
from orchestrator.allocations.refusals import TooManyFaultReports
from orchestrator.allocations.rules import (
    REPLACEMENT_ALLOWANCE_SECONDS,
    outcome_of_replacement,
    require_reportable,
)
from orchestrator.allocations.states import ReplacementOutcome
from orchestrator.allocations.store import faults as store
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.faults import Fault, FaultReport, Replacement, Search
from orchestrator.allocations.store.missing import missing_allocation
from orchestrator.allocations.store.releasing import ReleaseOrder, order_release
from orchestrator.allocations.store.rows import read_allocation
from orchestrator.allocations.store.timeline import note
from orchestrator.allocations.subject import Subject
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.placement.inventory import Catalogue
from orchestrator.placement.outcomes import LostRace, NoRoom
from orchestrator.placement.ranking import decide
from orchestrator.problems import SkuUnavailable, UnavailableReason
from orchestrator.tenants.principals import Actor, ActorKind

NOTE = "fault_reported"
NOTE_REPLACED = "replaced"
REASON = "fault_replaced"


async def report_fault(
    context: Context,
    operation: Operation,
    actor: Actor,
    tenant_id: UUID,
    allocation_id: UUID,
    fault: Fault,
    offered: Catalogue | None,
) -> Answer:
    """201 with the report. `offered`: replace the allocation, by the pools of this catalogue.

    Refusals, stored with the key: `NotFound`, `Archived`, `InvalidState`, `FaultReportsOpen`, `ReplacementInProgress`, and
    `SkuUnavailable` if there is no room for a replacement, `BalanceDepleted`. Not stored: `TooManyFaultReports`, `Forbidden`.
    """

    async def effect(tx: Transaction) -> Done:
        subject = await lock_allocation(tx, allocation_id, tenant_id)
        if subject is None:
            raise await missing_allocation(tx, allocation_id, tenant_id)
        standing = await store.read_standing(tx, allocation_id)
        require_reportable(subject, standing.open_reports, replace=offered is not None, replacing=standing.replacing)
        limit = context.limits.fault_reports_per_day_max
        if await store.is_rate_reached(tx, subject.tenant_id, limit):
            raise TooManyFaultReports.at(limit)
        report_id = await store.draw_report_id(tx)
        replacement_id = None
        if offered is not None:
            replacement_id = await _place(context, tx, subject, report_id, offered, operation, actor)
        limits = context.limits
        wait_seconds = limits.requested_seconds_max + limits.provision_seconds_max + REPLACEMENT_ALLOWANCE_SECONDS
        report = await store.insert_report(
            tx, subject, report_id, fault, actor, replacement_id=replacement_id, wait_seconds=wait_seconds
        )
        await _announce(tx, subject, report, operation, actor)
        return Done(201, fault_document(report), report_id)

    return await run_once(context, operation, effect, tenant_id)


async def _place(
    context: Context,
    tx: Transaction,
    subject: Subject,
    report_id: UUID,
    offered: Catalogue,
    operation: Operation,
    actor: Actor,
) -> UUID:
    """Place the replacement. Raises its refusal, and `TransactionConflict` if only locked nodes have room."""
    row = await read_allocation(tx, subject.id, None)
    assert row is not None, "a locked allocation can be read"
    pool = offered.pools.get((row.region, row.gpu_model, row.shape))
    if pool is None:
        raise _no_room(subject)
    search = Search(pool.pool_id, decide(row.shape, row.gpus, pool.layouts).choices)
    start_seconds = context.limits.requested_seconds_max
    placed = await store.place_replacement(tx, subject, report_id, search, operation, actor, start_seconds)
    match placed:
        case UUID():
            return placed
        case NoRoom():
            raise _no_room(subject)
        case LostRace():
            raise TransactionConflict("only nodes that other transactions hold have room for the replacement")
        case refusal:
            raise refusal


def _no_room(subject: Subject) -> SkuUnavailable:
    return SkuUnavailable(
        f"no node in {subject.region} has {subject.gpus} other GPUs of {subject.sku} free, so the allocation stays and nothing"
        " was reported; report without `replace`, or retry later",
        reason=UnavailableReason.BUSY_NOW,
    )


async def _announce(tx: Transaction, subject: Subject, report: FaultReport, operation: Operation, actor: Actor) -> None:
    replaced_by = "" if report.replacement_id is None else f", replaced by {report.replacement_id}"
    await note(tx, subject.id, actor, NOTE, f"{report.symptom}{replaced_by}", subject.fence)
    await append_event(
        tx,
        Event(
            EventType.NODE_FAULT_REPORTED, f"nodes/{report.node_id}", uuid4(), None,
            {
                "report_id": report.id, "node_id": report.node_id, "slots": report.slots, "allocation_id": subject.id,
                "reported_tenant_id": subject.tenant_id, "symptom": report.symptom,
                "replacement_id": report.replacement_id,
            },
        ),
    )  # fmt: skip
    payload = {
        "report_id": report.id, "allocation_id": subject.id, "symptom": report.symptom,
        "replacement_id": report.replacement_id, "fence": subject.fence,
    }  # fmt: skip
    event = Event(
        EventType.ALLOCATION_FAULT_REPORTED, subject.name, subject.correlation_id, subject.tenant_id, payload,
        operation.key, operation.request_id,
    )  # fmt: skip
    await append_event(tx, event)


async def conclude_replacement(context: Context, report_id: UUID) -> ReplacementOutcome | None:
    """End the replacement of a report, evaluated after the locks of both nodes; None if it goes on or has ended.

    If the replacement is active, the faulty allocation is released in the same transaction. In every other case both stay as
    they are.
    """
    return await transact(context, lambda tx: _conclude(context, tx, report_id))


async def _conclude(context: Context, tx: Transaction, report_id: UUID) -> ReplacementOutcome | None:
    found = await store.lock_replacement(tx, report_id)
    if found is None:
        return None
    outcome = outcome_of_replacement(found.old_state, found.new_state, overdue=found.overdue)
    if outcome is None:
        return None
    await store.conclude_replacement(tx, report_id, outcome)
    subject = await lock_allocation(tx, found.allocation_id)
    if subject is None:  # archived: its tenant has seen its end
        return outcome
    await note(tx, subject.id, Actor(ActorKind.WORKER, REASON), NOTE_REPLACED, outcome, subject.fence)
    await _announce_outcome(tx, subject, found, outcome)
    if outcome is ReplacementOutcome.REPLACED:
        order = ReleaseOrder(REASON, context.limits.requested_seconds_max)
        await order_release(tx, subject, order, Actor(ActorKind.TENANT, REASON))
    return outcome


async def _announce_outcome(tx: Transaction, subject: Subject, found: Replacement, outcome: ReplacementOutcome) -> None:
    replaced = outcome is ReplacementOutcome.REPLACED
    payload = {
        "report_id": found.id, "allocation_id": subject.id, "replacement_id": found.replacement_id,
        "symptom": found.symptom, "fence": subject.fence, **({} if replaced else {"outcome": outcome.value}),
    }  # fmt: skip
    kind = EventType.ALLOCATION_REPLACED if replaced else EventType.ALLOCATION_REPLACEMENT_FAILED
    await append_event(tx, Event(kind, subject.name, subject.correlation_id, subject.tenant_id, payload))


async def retire_reports(context: Context, retention_seconds: float, limit: int) -> int:
    """Delete at most `limit` closed reports past their retention, the earliest first; return how many."""

    async def work(tx: Transaction) -> int:
        return await store.delete_over(tx, retention_seconds, limit)

    return await transact(context, work)
