"""Commit, cancel and end a maintenance window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import EventType
from orchestrator.maintenance import store, tasks_store
from orchestrator.maintenance.changes import note_change, note_not_run, notify_tenants, window_document
from orchestrator.maintenance.moving import Targets, find_new_places, lock_reservations, move_claims
from orchestrator.maintenance.rules import Policies, require_no_conflicts, require_window
from orchestrator.maintenance.states import WindowState
from orchestrator.maintenance.store import Target
from orchestrator.maintenance.window_tasks import WantedTask, require_runnable, require_task
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState
from orchestrator.reservations.resource_names import NamedResources
from orchestrator.tenants.principals import Actor


@dataclass(frozen=True, slots=True)
class Wanted:
    """A window that an operator commits."""

    resources: NamedResources
    starts_at: datetime
    ends_at: datetime
    reason: str
    policies: Policies
    task: WantedTask | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many windows may be open, and the catalogue by which claims are moved."""

    open_max: int
    catalogue: CatalogueCache


async def commit_maintenance(
    context: Context, operation: Operation, actor: Actor, wanted: Wanted, bounds: Bounds
) -> Answer:
    """201 with the window: its units are claimed, except those of allocations, whose tenants are notified.

    Claims of reservations of a SKU are moved out of its way by its policy, all of them or none.
    Refusals: `ResourceNotFound`, `MaintenanceWindowInvalid`, `MaintenanceConflict`, `MaintenanceTableFull`,
    `MaintenanceTaskInvalid`, `MaintenanceTaskUnsupported`.
    """

    async def effect(tx: Transaction) -> Done:
        places = await _lock_nodes(tx, wanted, bounds.catalogue)
        # Again: nodes and claims may have changed before the locks.
        targets = await store.find_targets(tx, wanted.resources)
        require_window(wanted.starts_at, wanted.ends_at, await store.read_clock(tx))
        conflicts = await store.find_conflicts(tx, targets, wanted.starts_at, wanted.ends_at)
        if places:
            await lock_reservations(tx, conflicts, places)
            conflicts = await store.find_conflicts(tx, targets, wanted.starts_at, wanted.ends_at)
        require_no_conflicts(conflicts, wanted.policies, movable=places.keys())
        await _require_task(tx, wanted, targets)
        await move_claims(tx, conflicts, wanted.policies, places, f"maintenance: {wanted.reason}")
        window = await store.insert_window(
            tx, targets, wanted.starts_at, wanted.ends_at, wanted.reason, open_max=bounds.open_max
        )
        if wanted.task is not None:
            await tasks_store.insert_tasks(tx, window.id, wanted.task)
            window = await store.read_window(tx, window.id)
        await notify_tenants(tx, window, EventType.ALLOCATION_MAINTENANCE, conflicts, operation)
        await note_change(tx, window, EventType.MAINTENANCE_SCHEDULED, actor, operation)
        return Done(201, window_document(window), window.id)

    return await run_once(context, operation, effect, None)


async def _require_task(tx: Transaction, wanted: Wanted, targets: Sequence[Target]) -> None:
    if wanted.task is None:
        return
    require_task(wanted.task, wanted.starts_at, wanted.ends_at, await store.read_clock(tx))
    require_runnable(wanted.task, await tasks_store.read_nodes(tx, targets))


async def _lock_nodes(tx: Transaction, wanted: Wanted, catalogue: CatalogueCache) -> Targets:
    """Lock the nodes of the window and those that claims are moved to, by id; return the new places."""
    require_window(wanted.starts_at, wanted.ends_at, await store.read_clock(tx))
    targets = await store.find_targets(tx, wanted.resources)
    conflicts = await store.find_conflicts(tx, targets, wanted.starts_at, wanted.ends_at)
    nodes = {target.node_id for target in targets}
    places = await find_new_places(tx, catalogue, conflicts, wanted.policies, nodes)
    await store.lock_nodes(tx, [*nodes, *(pick.node_id for pick in places.values())])
    return places


async def cancel_maintenance(context: Context, operation: Operation, actor: Actor, window_id: UUID) -> Answer:
    """200 with the window, cancelled before it started. Refusals: `NotFound`, `InvalidState`."""
    return await _close(context, operation, actor, window_id, WindowState.SCHEDULED, WindowState.CANCELLED)


async def end_maintenance(context: Context, operation: Operation, actor: Actor, window_id: UUID) -> Answer:
    """200 with the active window, ended before its time. Refusals: `NotFound`; `InvalidState`, also while its task runs."""
    return await _close(context, operation, actor, window_id, WindowState.ACTIVE, WindowState.ENDED)


async def _close(
    context: Context, operation: Operation, actor: Actor, window_id: UUID, before: WindowState, state: WindowState
) -> Answer:
    happened = EventType.MAINTENANCE_ENDED if state is WindowState.ENDED else EventType.MAINTENANCE_CANCELLED

    why = f"window_{state}: the window was {state} before the task began"

    async def effect(tx: Transaction) -> Done:
        window = await store.lock_window(tx, window_id, before)
        resetting = await store.find_reset(tx, window_id)
        if resetting is not None:
            raise InvalidState(f"GPU reset {resetting} is open; end the window after it", state="gpu_reset")
        running = await tasks_store.find_running(tx, window_id)
        if running is not None:
            raise InvalidState(
                f"the task of the window runs on node {running}; end the window after it", state="maintenance_task"
            )
        targets = await store.read_planned(tx, window_id)
        planned = await store.find_conflicts(tx, targets, window.starts_at, window.ends_at)
        not_run = await tasks_store.end_waiting(tx, window_id, why)
        window = await store.close_window(tx, window, state)
        await notify_tenants(tx, window, EventType.ALLOCATION_MAINTENANCE_CANCELLED, planned, operation)
        await note_change(tx, window, happened, actor, operation)
        await note_not_run(tx, window, not_run, why, actor, operation)
        return Done(200, window_document(window), window_id)

    return await run_once(context, operation, effect, None)
