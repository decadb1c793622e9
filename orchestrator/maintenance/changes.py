"""Events and audit rows of maintenance windows, and how a response shows one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event, append_events
from orchestrator.maintenance.rules import Conflict
from orchestrator.maintenance.states import OwnerKind
from orchestrator.maintenance.store import Window
from orchestrator.operations.store.operations import Operation
from orchestrator.tenants.principals import Actor

AUDITED = {
    EventType.MAINTENANCE_SCHEDULED: "maintenance.commit",
    EventType.MAINTENANCE_STARTED: "maintenance.start",
    EventType.MAINTENANCE_ENDED: "maintenance.end",
    EventType.MAINTENANCE_CANCELLED: "maintenance.cancel",
}
"""The audit action of each change."""


def window_document(window: Window) -> dict[str, Any]:
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
