"""What a node really holds: everything that its directories, its leases and its hypervisor name, nothing left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from node_agent.drivers.contract import GuestState, Held, Inventory
from node_agent.drivers.leases import Leases
from node_agent.drivers.records import RecordDirectory

Directory = TypeVar("Directory", bound=RecordDirectory[Any])


def take_inventory(
    directories: Iterable[Directory],
    leases: Leases,
    is_alive: Callable[[Directory], bool],
    without_files: Iterable[Held] = (),
) -> Inventory:
    """Allocations by record, by lease and by the mere directory: one whose record is lost is there all the same.

    `without_files` are allocations that something else knows of. Raises OSError if a directory cannot be read.
    """
    leases_held = leases.held()
    leased = {slot: lease.allocation_id for slot, lease in leases_held.items()}
    fences = {lease.allocation_id: lease.fence for lease in leases_held.values()}
    held: dict[UUID, Held] = {}
    for directory in directories:
        record = directory.load()
        if record is not None:
            state = GuestState(record.state)
            if state is GuestState.RUNNING and not is_alive(directory):
                state = GuestState.DOWN
            held[record.allocation_id] = Held(
                record.allocation_id,
                sorted(record.slots),
                record.fence,
                state,
                record.restart_policy,
                record.first_boot,
            )
        elif (named := directory.allocation_id) is not None:
            held[named] = Held(named, _slots_of(named, leased), fences.get(named))
    for allocation_id in sorted(set(leased.values()) - held.keys()):
        held[allocation_id] = Held(allocation_id, _slots_of(allocation_id, leased), fences[allocation_id])
    for other in without_files:
        held.setdefault(other.allocation_id, other)
    return Inventory(list(held.values()), leased)


def _slots_of(allocation_id: UUID, leased: dict[int, UUID]) -> Sequence[int]:
    return sorted(slot for slot, holder in leased.items() if holder == allocation_id)
