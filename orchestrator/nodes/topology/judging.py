"""Judge what was found of a node: approve it if it is what was declared, or compare it with what is approved.

Callers hold the lock of the node's row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from uuid import UUID, uuid4

import structlog

from berth.process.json_objects import JsonObject
from node_agent.wire.topology import Topology
from orchestrator.audit import store as audit
from orchestrator.catalogue.guest_size_store import require_sizes, share_sizes
from orchestrator.catalogue.refusals import GuestSizeMisfit, GuestSizeUnsupported
from orchestrator.catalogue.rules import least, rooms_of
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.deploy_systems.agentless_store import Agentless
from orchestrator.nodes.hardware.rules import faults_of_differences, parts_of
from orchestrator.nodes.store import hardware, topologies
from orchestrator.nodes.store.topologies import NodeTopology
from orchestrator.nodes.topology.rules import Difference, Profile, differences, drifted_slots, equals_profile
from orchestrator.operations.store.operations import Operation
from orchestrator.tenants.principals import Actor, ActorKind

log = structlog.get_logger("discovery")

DISCOVERY = Actor(ActorKind.WORKER, "discovery")


class Taken(StrEnum):
    """What became of a discovery."""

    FAILED = "failed"
    FOUND = "found"
    APPROVED = "approved"
    DRIFTED = "drifted"
    RESTORED = "restored"


async def take_inspection(tx: Transaction, node_id: UUID, node: Agentless, task_id: UUID, found: Topology) -> Taken:
    """The locked node, which has no agent, was inspected: this is its discovery."""
    await topologies.record_inspected(tx, node_id, task_id, node.epoch, found)
    return await judge(tx, node_id, node.name, node.profile, found)


async def judge(tx: Transaction, node_id: UUID, name: str, profile: Profile, found: Topology) -> Taken:
    """Approve what was recorded as found if nothing was approved and it is what was declared; else compare it."""
    known = await topologies.read_topology(tx, node_id)
    assert known is not None, "what was found has a row"
    approved = None if known.approved is None else Topology.model_validate(known.approved)
    await place(tx, node_id, found, approved, profile.slot_count)
    if approved is None:
        if not equals_profile(found, profile):
            return Taken.FOUND
        try:
            await approve(tx, node_id, name, found, DISCOVERY, None)
        except (GuestSizeMisfit, GuestSizeUnsupported) as refusal:
            log.warning("topology_not_approved", node_id=str(node_id), why=refusal.detail)
            return Taken.FOUND
        return Taken.APPROVED
    room = least(rooms_of(approved))
    if room != (known.slot_processors, known.slot_memory_bytes):
        await topologies.record_room(tx, node_id, *room)
    return await _compare(tx, node_id, name, known, differences(approved, found), found.digest())


async def place(tx: Transaction, node_id: UUID, found: Topology, approved: Topology | None, slot_count: int) -> None:
    """Record by serial number where the hardware is."""
    left_out = await hardware.place_hardware(tx, node_id, parts_of(found, approved, slot_count), DISCOVERY)
    if left_out:
        log.warning("hardware_left_out", node_id=str(node_id), entries=left_out)


async def _compare(
    tx: Transaction, node_id: UUID, name: str, known: NodeTopology, now: Sequence[Difference], digest: str
) -> Taken:
    described = [{**asdict(difference), "slots": list(difference.slots)} for difference in now]
    if described == known.differences:
        return Taken.FOUND
    await topologies.record_differences(tx, node_id, now)
    fresh = [one for one, written in zip(now, described, strict=True) if written not in known.differences]
    if left_out := await hardware.note_faults(tx, node_id, faults_of_differences(fresh), DISCOVERY):
        log.warning("hardware_left_out", node_id=str(node_id), entries=left_out)
    slots = drifted_slots(now)
    if not slots and not known.drifted_slots:
        return Taken.FOUND
    event = EventType.NODE_TOPOLOGY_DRIFTED if slots else EventType.NODE_TOPOLOGY_RESTORED
    payload: JsonObject = {"node_id": node_id, "name": name, "digest": digest}
    if slots:
        payload |= {"slots": slots, "differences": described}
    await append_event(tx, Event(event, f"nodes/{node_id}", uuid4(), None, payload))
    await audit.record(tx, DISCOVERY, event.value, f"nodes/{node_id}", payload, None)
    return Taken.DRIFTED if slots else Taken.RESTORED


async def approve(
    tx: Transaction, node_id: UUID, name: str, found: Topology, actor: Actor, operation: Operation | None
) -> None:
    """What was found last is the node's from now on. Raises `GuestSizeMisfit`, `GuestSizeUnsupported`."""
    rooms, digest = rooms_of(found), found.digest()
    await share_sizes(tx)
    await require_sizes(tx, node_id, rooms)
    await topologies.approve_found(tx, node_id, actor)
    await topologies.record_room(tx, node_id, *least(rooms))
    payload = {"node_id": node_id, "name": name, "digest": digest, "approved_by": f"{actor.kind.value}:{actor.id}"}
    key, request_id = (operation.key, operation.request_id) if operation is not None else (None, None)
    event = Event(EventType.NODE_TOPOLOGY_APPROVED, f"nodes/{node_id}", uuid4(), None, payload, key, request_id)
    await append_event(tx, event)
    if operation is None:
        await audit.record(tx, actor, "node.approve", f"nodes/{node_id}", {"digest": digest}, request_id)
