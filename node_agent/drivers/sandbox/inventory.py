"""What a sandbox node really holds: everything that its directories and leases name, nothing left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from node_agent.drivers.interface import Held, Inventory
from node_agent.drivers.sandbox.leases import Leases
from node_agent.drivers.sandbox.processes import alive
from node_agent.drivers.sandbox.records import AllocationDirectory


def take_inventory(allocations: Path, leases: Leases) -> Inventory:
    """Allocations by record, by lease and by the mere directory: one whose record is lost is there all the same.

    Raises OSError if a directory cannot be read.
    """
    leased = {slot: lease.allocation_id for slot, lease in leases.held().items()}
    fences = {lease.allocation_id: lease.fence for lease in leases.held().values()}
    readable, dead = [], []
    held: dict[UUID, Held] = {}
    for path in sorted(allocations.iterdir()):
        directory = AllocationDirectory(path)
        record = directory.load()
        if record is not None:
            readable.append(record.allocation_id)
            held[record.allocation_id] = Held(record.allocation_id, sorted(record.slots), record.fence)
            if record.state == "running" and not alive(directory):
                dead.append(record.allocation_id)
        elif (named := _named(path)) is not None:
            held[named] = Held(named, _slots_of(named, leased), fences.get(named))
    for allocation_id in sorted(set(leased.values()) - held.keys()):
        held[allocation_id] = Held(allocation_id, _slots_of(allocation_id, leased), fences[allocation_id])
    return Inventory(readable, dead, leased, list(held.values()))


def _slots_of(allocation_id: UUID, leased: dict[int, UUID]) -> Sequence[int]:
    return sorted(slot for slot, holder in leased.items() if holder == allocation_id)


def _named(path: Path) -> UUID | None:
    """Return the allocation that a directory is named after, or None."""
    try:
        return UUID(path.name)
    except ValueError:
        return None
