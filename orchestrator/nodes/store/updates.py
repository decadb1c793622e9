"""The one door through which a registered node's address and slots change: columns, slots, fit and event together."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.store.nodes import Node, add_slots
from orchestrator.operations.store.operations import Operation

_SET_ADDRESS = """
update nodes set address = cast(:address as text), row_version = row_version + 1 where id = :node_id
"""
_SET_HALF = "update nodes set half_slots = :half_slots where id = :node_id"
_DIVIDE_SLOTS = "update slots set numa_half = (slot_index >= :half_slots)::integer where node_id = :node_id"


@dataclass(frozen=True, slots=True)
class NewAddress:
    """Where operators reach the machine from now on; None: nowhere."""

    value: str | None


@dataclass(frozen=True, slots=True)
class NodeChanges:
    """What a request changes of a node; None leaves it as it is. `slot_count`, with `half_slots`: of a node without slots."""

    address: NewAddress | None = None
    half_slots: int | None = None
    slot_count: int | None = None


async def apply_changes(tx: Transaction, node: Node, changes: NodeChanges, operation: Operation) -> list[str]:
    """Write what differs from the locked node, with one event; return the names of these members."""
    after = {"address": node.address, "half_slots": node.half_slots}
    if changes.address is not None and changes.address.value != node.address:
        after["address"] = changes.address.value
        await _set_address(tx, node.id, changes.address.value)
    if changes.slot_count is not None and changes.half_slots is not None:
        assert node.slot_count == 0, "the slots of a node are made once"
        after |= {"slot_count": changes.slot_count, "half_slots": changes.half_slots}
        await add_slots(tx, node.id, changes.slot_count, changes.half_slots)
    elif changes.half_slots not in (None, node.half_slots):
        after["half_slots"] = changes.half_slots
        await _divide_slots(tx, node.id, changes.half_slots)
    changed = [member for member in after if after[member] != getattr(node, member)]
    if changed:
        payload = {"node_id": node.id, "name": node.name, "changed": changed, **after}
        subject = f"nodes/{node.id}"
        event = Event(EventType.NODE_UPDATED, subject, uuid4(), None, payload, operation.key, operation.request_id)
        await append_event(tx, event)
    return changed


async def _set_address(tx: Transaction, node_id: UUID, address: str | None) -> None:
    """Operators reach the node, locked by the caller, at this address from the commit on; None: at none."""
    await tx.execute(_SET_ADDRESS, {"node_id": node_id, "address": address})


async def _divide_slots(tx: Transaction, node_id: UUID, half_slots: int) -> None:
    """The first `half_slots` slots of the node, locked by the caller, lie in its first NUMA half, the others in the second.

    Later placements follow it; what is placed stays.
    """
    divided = {"node_id": node_id, "half_slots": half_slots}
    await tx.execute(_SET_HALF, divided)
    await tx.execute(_DIVIDE_SLOTS, divided)
    await tx.execute("select refresh_node_fit(:node_id)", {"node_id": node_id})
