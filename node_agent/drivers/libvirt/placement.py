"""Which processors and which memory of the host a guest gets, from the slots that its allocation holds. Pure.

Each slot has whole cores of the NUMA node that its GPU is on, the same ones at all times, and no two slots share one. Where a
NUMA node has too few cores for its slots, no guest of the host is pinned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from node_agent.wire.fields import Closed


class Cell(Closed):
    """What a guest has of one NUMA node: the processors of the host, one for each of the guest, and bytes of memory."""

    numa_node: int
    processors: list[int]
    memory_bytes: int


class GuestPlacement(Closed):
    """Where a guest runs. `is_bound`: its memory too, because the host has several NUMA nodes."""

    cells: list[Cell]
    is_bound: bool

    def processors(self) -> list[int]:
        """The processor of the host for each of the guest's."""
        return [number for cell in self.cells for number in cell.processors]


@dataclass(frozen=True)
class Core:
    """A core of the host, and its threads."""

    numa_node: int
    threads: tuple[int, ...]


@dataclass(frozen=True)
class Pinning:
    """What each slot has. `blocks` is None where guests are not pinned; `why` says so, `shared` is then what they share:
    empty means every processor. `is_bound`: memory of guests is of the NUMA nodes of their slots; `why_unbound`: why it is
    not, on a host with several."""

    blocks: tuple[tuple[int, tuple[int, ...]], ...] | None
    why: str
    shared: tuple[int, ...] = ()
    is_bound: bool = False
    why_unbound: str = ""

    def place(self, slots: Sequence[int], memory_bytes: int) -> GuestPlacement | None:
        """Where a guest with these slots runs, with `memory_bytes` for each; None: it is not pinned.

        It is not where one of its slots has no processors: a node may have more slots than GPUs, if guests get none.
        """
        if self.blocks is None or any(slot >= len(self.blocks) for slot in slots):
            return None
        cells: dict[int, Cell] = {}
        for slot in sorted(slots):
            node, threads = self.blocks[slot]
            held = cells.setdefault(node, Cell(numa_node=node, processors=[], memory_bytes=0))
            cells[node] = Cell(
                numa_node=node, processors=[*held.processors, *threads], memory_bytes=held.memory_bytes + memory_bytes
            )
        return GuestPlacement(cells=[cells[node] for node in sorted(cells)], is_bound=self.is_bound)


def pin(cores: Sequence[Core], slot_nodes: Sequence[int], each: int, reserved: Iterable[int] | None) -> Pinning:
    """Divide the cores between the slots: `slot_nodes` has the NUMA node of each, `each` the processors of one.

    A core is the host's if one of its threads is `reserved`. None: the first core of each NUMA node is the host's, and only
    where guests are pinned.
    """
    nodes = sorted({core.numa_node for core in cores})
    kept = _first_threads(cores, nodes) if reserved is None else frozenset(reserved)
    free = [core for core in cores if kept.isdisjoint(core.threads)]
    shared = () if reserved is None else tuple(sorted(thread for core in free for thread in core.threads))
    if not slot_nodes:
        return Pinning(None, "the slots of the host are not known: it has no GPU, and BERTH_LIBVIRT_SLOTS is 0", shared)
    left = {node: [core for core in free if core.numa_node == node] for node in nodes}
    blocks: list[tuple[int, tuple[int, ...]]] = []
    for node in slot_nodes:
        taken: list[int] = []
        while len(taken) < each and left.get(node):
            taken += left[node].pop(0).threads
        if len(taken) < each:
            return Pinning(None, _too_few(node, free, slot_nodes, each), shared)
        blocks.append((node, tuple(taken[:each])))
    return Pinning(tuple(blocks), "", shared, len(nodes) > 1)


def why_unbound(slot_nodes: Sequence[int], memory: Mapping[int, int], each_bytes: int) -> str:
    """Why guests cannot be bound to the memory of their NUMA nodes, with `each_bytes` for each slot; empty: they can.

    `memory`: bytes by NUMA node, as far as they are known. QEMU of a guest that is bound is killed where a node has too few.
    """
    for node in sorted(set(slot_nodes)):
        slots = sum(one == node for one in slot_nodes)
        if node not in memory:
            return f"how much memory NUMA node {node} has is not known"
        if memory[node] < slots * each_bytes:
            return (
                f"NUMA node {node} has {memory[node]} bytes of memory, too few for {slots} slots with {each_bytes} each"
            )
    return ""


def spread(slots: int, nodes: Sequence[int]) -> tuple[int, ...]:
    """The NUMA node of each of so many slots, where no GPU says it: in equal runs, the first node first."""
    return tuple(nodes[slot * len(nodes) // slots] for slot in range(slots)) if nodes else ()


def conflict(wanted: GuestPlacement, held: Mapping[str, GuestPlacement]) -> str | None:
    """Why these processors cannot be had: a guest that began under other settings has one of them. `held`: by name."""
    for name, other in sorted(held.items()):
        both = sorted(set(wanted.processors()) & set(other.processors()))
        if both:
            return f"processor {both[0]} is pinned to the guest of allocation {name}, which began under other settings"
    return None


def _first_threads(cores: Sequence[Core], nodes: Sequence[int]) -> frozenset[int]:
    first = {node: next(core for core in cores if core.numa_node == node) for node in nodes}
    return frozenset(thread for core in first.values() for thread in core.threads)


def _too_few(node: int, free: Sequence[Core], slot_nodes: Sequence[int], each: int) -> str:
    cores = sum(core.numa_node == node for core in free)
    slots = sum(one == node for one in slot_nodes)
    return f"NUMA node {node} has {cores} cores for guests, too few for {slots} slots with {each} processors each"
