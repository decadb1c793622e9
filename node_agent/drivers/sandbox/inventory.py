"""What a sandbox node really holds: everything that its directories and leases name, nothing left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from node_agent.drivers.contract import GuestState, Held, Inventory
from node_agent.drivers.sandbox.leases import Leases
from node_agent.drivers.sandbox.processes import alive
from node_agent.drivers.sandbox.records import AllocationDirectory, GuestRecord


def take_inventory(allocations: Path, leases: Leases) -> Inventory:
    """Allocations by record, by lease and by the mere directory: one whose record is lost is there all the same.

    Raises OSError if a directory cannot be read.
    """
    leases_held = leases.held()
    leased = {slot: lease.allocation_id for slot, lease in leases_held.items()}
    fences = {lease.allocation_id: lease.fence for lease in leases_held.values()}
    held: dict[UUID, Held] = {}
    for path in sorted(allocations.iterdir()):
        directory = AllocationDirectory(path)
        record = directory.load()
        if record is not None:
            state = _state(directory, record)
            held[record.allocation_id] = Held(record.allocation_id, sorted(record.slots), record.fence, state)
        elif (named := _named(path)) is not None:
            held[named] = Held(named, _slots_of(named, leased), fences.get(named))
    for allocation_id in sorted(set(leased.values()) - held.keys()):
        held[allocation_id] = Held(allocation_id, _slots_of(allocation_id, leased), fences[allocation_id])
    return Inventory(list(held.values()), leased)


def _state(directory: AllocationDirectory, record: GuestRecord) -> GuestState:
    if record.state == "running" and not alive(directory):
        return GuestState.DOWN
    return GuestState(record.state)


def _slots_of(allocation_id: UUID, leased: dict[int, UUID]) -> Sequence[int]:
    return sorted(slot for slot, holder in leased.items() if holder == allocation_id)


def _named(path: Path) -> UUID | None:
    """Return the allocation that a directory is named after, or None."""
    try:
        return UUID(path.name)
    except ValueError:
        return None
