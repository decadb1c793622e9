"""Sizes of guests: what a SKU states, and what the slots of a node have by its topology. Pure.

What a topology does not name is unknown, and refuses nothing: only positive evidence keeps a node from a SKU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node_agent.wire.layout import layout_of
from node_agent.wire.processors import parse_processors
from node_agent.wire.topology import Topology


@dataclass(frozen=True, slots=True)
class GuestSize:
    """What a SKU states of its guests for each GPU; None: the share that the node gives a slot. Memory in bytes."""

    vcpus: int | None = None
    memory_bytes: int | None = None

    @property
    def is_stated(self) -> bool:
        """Whether it states anything."""
        return self.vcpus is not None or self.memory_bytes is not None


@dataclass(frozen=True, slots=True)
class SlotRoom:
    """What a slot has of its node: threads of processors and bytes of memory; None: unknown."""

    slot: int
    processors: int | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Lack:
    """A slot that has less than a SKU states."""

    slot: int
    what: str
    has: int
    stated: int

    @property
    def sentence(self) -> str:
        """The lack in words."""
        return f"slot {self.slot} has {self.has} {self.what} by the topology, and {self.stated} are stated"


def rooms_of(topology: Topology) -> list[SlotRoom]:
    """What each slot has: its part of the NUMA node of its GPU; of the whole node where some GPU has no NUMA node.

    Empty if its GPUs are unknown.
    """
    layout = layout_of(topology)
    if layout is None or not layout.addresses:
        return []
    node_of = {gpu.address: gpu.numa_node for gpu in topology.gpus or ()}
    nodes = {node.number: node for node in topology.numa_nodes or ()}
    if not all(number in nodes for number in node_of.values()):
        count = len(layout.addresses)
        threads, memory = topology.processors.threads, topology.memory_bytes
        return [SlotRoom(slot, _part(threads, count), _part(memory, count)) for slot in range(count)]
    on_node = list(node_of.values())
    rooms = []
    for slot, address in enumerate(layout.addresses):
        number = node_of[address]
        assert number is not None, "it is among the NUMA nodes"
        node, count = nodes[number], on_node.count(number)
        rooms.append(SlotRoom(slot, _part(_threads(node.processors), count), _part(node.memory_bytes, count)))
    return rooms


def least(rooms: Sequence[SlotRoom]) -> tuple[int | None, int | None]:
    """The least processors and the least bytes of memory that a slot is known to have."""
    return (
        min((room.processors for room in rooms if room.processors is not None), default=None),
        min((room.memory_bytes for room in rooms if room.memory_bytes is not None), default=None),
    )


def lack_of(rooms: Sequence[SlotRoom], size: GuestSize) -> Lack | None:
    """The first slot that is known to have less than the size states for each GPU; None: there is none."""
    for room in rooms:
        if room.processors is not None and size.vcpus is not None and room.processors < size.vcpus:
            return Lack(room.slot, "processors", room.processors, size.vcpus)
        if room.memory_bytes is not None and size.memory_bytes is not None and room.memory_bytes < size.memory_bytes:
            return Lack(room.slot, "bytes of memory", room.memory_bytes, size.memory_bytes)
    return None


def _part(whole: int | None, slots: int) -> int | None:
    return None if whole is None else whole // slots


def _threads(listed: str | None) -> int | None:
    """How many processors a list names; None if it names none, or is no list."""
    try:
        return len(parse_processors(listed or "")) or None
    except ValueError:
        return None
