"""Drain nodes: notify tenants, move reservations, and act at the deadline."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID, uuid4

from berth.process.json_objects import JsonObject
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.releasing import ReleaseOrder, order_release
from orchestrator.audit import store as audit
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event, append_events
from orchestrator.maintenance import moving
from orchestrator.maintenance import store as windows
from orchestrator.maintenance.rules import Conflict, Policies
from orchestrator.maintenance.states import Resolution
from orchestrator.nodes.deploy_systems.uses import require_no_run, require_servable
from orchestrator.nodes.drains import rules
from orchestrator.nodes.drains.rules import Drain, DrainOrder
from orchestrator.nodes.states import NodeChange, state_after
from orchestrator.nodes.store import drains as store
from orchestrator.nodes.store import nodes
from orchestrator.nodes.store.steering import change_node
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Actor, ActorKind

RELEASE_REASON = "node_drain"
_SWEEPER = Actor(ActorKind.WORKER, "drain")
_ORDERED = Actor(ActorKind.ADMIN, "policy:drain")
_MOVING = Policies(Resolution.NOTIFY, Resolution.MOVE)
_RUNNING = frozenset({AllocationState.REQUESTED, AllocationState.PROVISIONING, AllocationState.ACTIVE})


class Advanced(StrEnum):
    """What a drain has come to."""

    DRAINED = "drained"
    OVERDUE = "overdue"


async def drain_node(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, order: DrainOrder, catalogue: CatalogueCache
) -> Answer:
    """200 with the node, draining; `drained` once no claim is left on it.

    Claims of reservations of a SKU are moved to equal units, as far as some are free; `drain.remaining` lists what stays. The
    tenant of each allocation on the node is notified. Another order of a draining node replaces the one before and notifies
    again; the same one, or none, changes nothing. Refusals: `NotFound`, `InvalidState`, `Invalid` for an impossible deadline.
    """

    async def effect(tx: Transaction) -> Done:
        places = await _lock_nodes(tx, node_id, catalogue)
        before = await nodes.lock_node(tx, node_id)
        after = state_after(NodeChange.DRAIN, before)
        known = await store.read_drain(tx, node_id)
        goes_on = known is not None and after is before
        if known is not None and goes_on and (order.is_empty or order == known.order):
            await change_node(tx, node_id, NodeChange.DRAIN, EventType.NODE_DRAINING, actor, operation)
            return Done(200, await _document(tx, node_id), node_id)
        order.require_possible(await windows.read_clock(tx))
        said: JsonObject = {"deadline": order.deadline, "at_deadline": order.at_deadline, "reason": order.reason}
        shown = {name: str(value) for name, value in said.items() if value is not None}
        if order.deadline is not None:
            shown["deadline"] = order.deadline.isoformat()
        await change_node(
            tx, node_id, NodeChange.DRAIN, EventType.NODE_DRAINING, actor, operation, announced=True, **shown
        )
        drain = await store.write_drain(tx, node_id, order, by=f"{actor.kind.value}:{actor.id}", goes_on=goes_on)
        await _notify(tx, node_id, EventType.ALLOCATION_NODE_DRAINING, drain.described(), operation)
        await _move(tx, node_id, places, drain)
        return Done(200, await _document(tx, node_id), node_id)

    return await run_once(context, operation, effect, None)


async def _lock_nodes(tx: Transaction, node_id: UUID, catalogue: CatalogueCache) -> moving.Targets:
    """Lock the node and those that claims can be moved to, by id; return the new places."""
    conflicts = await _movable(tx, node_id)
    places = await moving.find_new_places(tx, catalogue, conflicts, _MOVING, {node_id})
    await windows.lock_nodes(tx, [node_id, *(pick.node_id for pick in places.values())])
    return places


async def _movable(tx: Transaction, node_id: UUID) -> list[Conflict]:
    """Claims of reservations of a SKU with a right to units of the node from now on, at most `MOVES_MAX`."""
    now, target = await windows.read_clock(tx), await store.read_target(tx, node_id)
    return await windows.find_conflicts(tx, target, now, store.FOREVER, of_a_sku=True, limit=rules.MOVES_MAX)


async def _move(tx: Transaction, node_id: UUID, places: moving.Targets, drain: Drain) -> None:
    """Move each claim that has a new place; one whose place was taken before its lock stays."""
    if not places:
        return
    await moving.lock_reservations(tx, await _movable(tx, node_id), places)
    conflicts = await _movable(tx, node_id)
    reason = "the node is draining" if drain.reason is None else f"the node is draining: {drain.reason}"
    for one in conflicts:
        pick = places.get(one.claim_id)
        if pick is not None and one.resolution(_MOVING) is Resolution.MOVE:
            await windows.move_claim(tx, one.claim_id, pick.node_id, pick.mask, reason)


async def _notify(tx: Transaction, node_id: UUID, happened: EventType, said: JsonObject, operation: Operation) -> None:
    """Emit an event to the tenant of each allocation on the node."""
    events = []
    for one in await store.read_tenancies(tx, node_id):
        payload = {"allocation_id": str(one.id), "node_id": str(node_id), **said}
        subject = f"allocations/{one.id}"
        events.append(
            Event(happened, subject, one.correlation_id, one.tenant_id, payload, operation.key, operation.request_id)
        )
    await append_events(tx, events)


async def _document(tx: Transaction, node_id: UUID) -> JsonObject:
    return await nodes.node_document(tx, await nodes.read_node(tx, node_id))


async def uncordon_node(context: Context, operation: Operation, actor: Actor, node_id: UUID) -> Answer:
    """200 with the node, active. Repeating it changes nothing. The tenants that a drain notified are notified of its end.

    A registered node without an agent is put into service so. Raises `InvalidState` also while a run of a deploy system is open
    on the node, and as `require_servable` does.
    """

    async def effect(tx: Transaction) -> Done:
        state = await nodes.lock_node(tx, node_id)
        await require_no_run(tx, node_id)
        await require_servable(tx, node_id, state)
        drain = await store.read_drain(tx, node_id)
        await change_node(tx, node_id, NodeChange.UNCORDON, EventType.NODE_UNCORDONED, actor, operation)
        if drain is not None:
            await _notify(tx, node_id, EventType.ALLOCATION_NODE_DRAIN_CANCELLED, {}, operation)
        return Done(200, await _document(tx, node_id), node_id)

    return await run_once(context, operation, effect, None)


async def advance_drain(context: Context, node_id: UUID) -> Advanced | None:
    """Announce that the node is empty, or that its deadline is over, evaluated after its lock; None: there is nothing to do."""

    async def work(tx: Transaction) -> Advanced | None:
        await nodes.lock_node(tx, node_id)
        standing = await store.read_standing(tx, node_id)
        if standing is None or not standing.is_open:
            return None
        drain = await store.read_drain(tx, node_id)
        assert drain is not None, "its drain is open"
        said: JsonObject
        if standing.claims == 0:
            await store.note_drained(tx, node_id)
            event, said = EventType.NODE_DRAINED, {"begun_at": drain.begun_at.isoformat()}
            advanced = Advanced.DRAINED
        elif standing.is_over:
            await store.note_overdue(tx, node_id)
            event, said = EventType.NODE_DRAIN_OVERDUE, {**drain.described(), "claims": standing.claims}
            advanced = Advanced.OVERDUE
        else:
            return None
        subject = f"nodes/{node_id}"
        payload = {"node_id": node_id, "name": standing.name, **said}
        await append_event(tx, Event(event, subject, uuid4(), None, payload))
        await audit.record(tx, _SWEEPER, event.value, subject, said, None)
        return advanced

    return await transact(context, work)


async def release_for_drain(context: Context, node_id: UUID, allocation_id: UUID) -> bool:
    """Release an allocation on a node whose drain is overdue and releases, evaluated after its locks; return whether it was.

    The release is audited. A drain that was given up, or got another deadline before, prevents it.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None or subject.state not in _RUNNING or subject.node_id != node_id:
            return False
        if not await store.is_releasing(tx, node_id):
            return False
        order = ReleaseOrder(RELEASE_REASON, context.limits.requested_seconds_max)
        await order_release(tx, subject, order, _ORDERED)
        detail = {"tenant_id": subject.tenant_id, "node_id": node_id, "reason": RELEASE_REASON}
        await audit.record(tx, _ORDERED, "allocation.release", subject.name, detail, None)
        return True

    return await transact(context, work)
