"""Events and audit rows of maintenance windows, and how a response shows one."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event, append_events
from orchestrator.maintenance.rules import Conflict
from orchestrator.maintenance.states import OwnerKind, TaskKind, WindowTaskState
from orchestrator.maintenance.store import Window
from orchestrator.maintenance.tasks_store import EndedWaiting
from orchestrator.operations.store.operations import Operation
from orchestrator.tenants.principals import Actor

AUDITED = {
    EventType.MAINTENANCE_SCHEDULED: "maintenance.commit",
    EventType.MAINTENANCE_STARTED: "maintenance.start",
    EventType.MAINTENANCE_ENDED: "maintenance.end",
    EventType.MAINTENANCE_CANCELLED: "maintenance.cancel",
}
"""The audit action of each change."""


def window_document(window: Window) -> JsonObject:
    """Its JSON."""
    shown = {name: getattr(window, name) for name in Window.__slots__ if name != "id"}
    return {"window_id": window.id, **shown, "state": window.state.value}


async def note_change(
    tx: Transaction, window: Window, happened: EventType, actor: Actor, operation: Operation | None
) -> None:
    """Write the event and the audit row of a change of a window, in the transaction of the change."""
    shown = {
        "starts_at": window.starts_at.isoformat(), "ends_at": window.ends_at.isoformat(), "reason": window.reason,
        "nodes": sorted({name.split(":")[1] for name in window.resources}),
    }  # fmt: skip
    key, request_id = (None, None) if operation is None else (operation.key, operation.request_id)
    payload = {"window_id": str(window.id), **shown}
    await append_event(tx, Event(happened, window.name, uuid4(), None, payload, key, request_id))
    await audit.record(tx, actor, AUDITED[happened], window.name, shown, request_id)


async def note_not_run(
    tx: Transaction, window: Window, ended: Sequence[EndedWaiting], failure: str, actor: Actor, operation: Operation | None
) -> None:  # fmt: skip
    """Write event and audit row of each task that does not run any more."""
    for one in ended:
        payload = task_payload(window.id, one.node_id, one.kind, one.plugin, WindowTaskState.NOT_RUN, failure)
        await note_task_end(tx, payload, actor, operation)


def task_payload(
    window_id: UUID, node_id: UUID, kind: TaskKind, plugin: str | None, state: WindowTaskState, failure: str | None
) -> JsonObject:  # fmt: skip
    """What the event and the audit row say about the end of a task."""
    return {
        "window_id": str(window_id), "node_id": str(node_id), "kind": kind.value, "plugin": plugin, "state": state.value,
        "failure": failure,
    }  # fmt: skip


async def note_task_end(tx: Transaction, payload: JsonObject, actor: Actor, operation: Operation | None = None) -> None:
    """Write event and audit row of the end of a task of a window."""
    subject = f"maintenance/{payload['window_id']}"
    key, request_id = (None, None) if operation is None else (operation.key, operation.request_id)
    await append_event(tx, Event(EventType.MAINTENANCE_TASK_ENDED, subject, uuid4(), None, payload, key, request_id))
    await audit.record(tx, actor, "maintenance.task_end", subject, payload, request_id)


async def notify_tenants(
    tx: Transaction, window: Window, happened: EventType, conflicts: Sequence[Conflict], operation: Operation | None
) -> None:
    """Emit an event about the window to the tenant of each allocation in its way."""
    allocations = {one.owner_id: one for one in conflicts if one.owner_kind is OwnerKind.ALLOCATION}
    key, request_id = (None, None) if operation is None else (operation.key, operation.request_id)
    deadline = {"deadline": window.starts_at.isoformat()} if happened is EventType.ALLOCATION_MAINTENANCE else {}
    events = []
    for allocation_id, conflict in allocations.items():
        assert conflict.correlation_id is not None, "an allocation has a correlation id"
        payload = {
            "allocation_id": str(allocation_id), "window_id": str(window.id), "reason": window.reason,
            "starts_at": window.starts_at.isoformat(), "ends_at": window.ends_at.isoformat(), **deadline,
        }  # fmt: skip
        subject = f"allocations/{allocation_id}"
        events.append(Event(happened, subject, conflict.correlation_id, conflict.tenant_id, payload, key, request_id))
    await append_events(tx, events)
