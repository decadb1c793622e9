"""How large a guest is: the share that its slots have of the node, or what its SKU states, within that share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node_agent.drivers.libvirt.placement import Cell, GuestPlacement
from node_agent.wire.guests import MEMORY_STEP_BYTES, GuestSize


class SizeUnavailable(Exception):
    """These slots of the node do not give a guest the size that its SKU states. The text says what they give."""


@dataclass(frozen=True)
class SlotShare:
    """What a guest may have of the node for each slot. `huge_page_kib` 0: its memory is of ordinary pages."""

    processors: int
    memory_bytes: int
    huge_page_kib: int = 0

    @property
    def memory_step_bytes(self) -> int:
        """What the memory of a guest, and of each of its NUMA nodes, is a multiple of."""
        return max(MEMORY_STEP_BYTES, self.huge_page_kib * 1024)


@dataclass(frozen=True)
class Sized:
    """The processors and the memory of one guest."""

    processors: int
    memory_bytes: int


def size_of(stated: GuestSize | None, slots: int, share: SlotShare) -> Sized:
    """The size of a guest with so many slots; what is not stated is their whole share. Raises SizeUnavailable."""
    most = Sized(share.processors * slots, share.memory_bytes * slots)
    if stated is None:
        return most
    processors = most.processors if stated.vcpus is None else stated.vcpus
    memory_bytes = most.memory_bytes if stated.memory_bytes is None else stated.memory_bytes
    if processors > most.processors:
        raise SizeUnavailable(
            f"the SKU states {processors} vCPUs, and {slots} slots have {most.processors} processors of this node"
            f" (BERTH_GUEST_PROCESSORS={share.processors})"
        )
    if memory_bytes > most.memory_bytes:
        raise SizeUnavailable(
            f"the SKU states {memory_bytes} bytes of memory, and {slots} slots have {most.memory_bytes} of this node"
            f" (BERTH_GUEST_MEMORY_BYTES={share.memory_bytes})"
        )
    if share.huge_page_kib and memory_bytes % (share.huge_page_kib * 1024):
        raise SizeUnavailable(
            f"the SKU states {memory_bytes} bytes of memory, which is no multiple of this node's huge pages of"
            f" {share.huge_page_kib} KiB"
        )
    return Sized(processors, memory_bytes)


def fit(whole: GuestPlacement, size: Sized, step_bytes: int) -> GuestPlacement:
    """The placement of a guest of this size on the processors and NUMA nodes that its slots have.

    Each NUMA node gives in proportion to its part of `whole`: its first processors, so that the threads of a core stay
    together, and whole steps of memory. Raises SizeUnavailable if one of them would give nothing.
    """
    processors = _divide(size.processors, [len(cell.processors) for cell in whole.cells])
    steps = _divide(size.memory_bytes // step_bytes, [cell.memory_bytes // step_bytes for cell in whole.cells])
    if processors is None or steps is None:
        raise SizeUnavailable(
            f"the SKU states {size.processors} vCPUs and {size.memory_bytes} bytes of memory, and the slots are on"
            f" {len(whole.cells)} NUMA nodes: each must have at least one vCPU and {step_bytes} bytes"
        )
    cells = [
        Cell(numa_node=cell.numa_node, processors=cell.processors[:count], memory_bytes=number * step_bytes)
        for cell, count, number in zip(whole.cells, processors, steps, strict=True)
    ]
    return GuestPlacement(cells=cells, is_bound=whole.is_bound)


def _divide(total: int, parts: Sequence[int]) -> list[int] | None:
    """`total` in proportion to `parts`: at most each part, and at least one of it; None if there are too few.

    The largest remainders are rounded up, the first of equal ones first.
    """
    every = sum(parts)
    if not len(parts) <= total <= every:
        return None
    given = [total * part // every for part in parts]
    order = sorted(range(len(parts)), key=lambda index: (-(total * parts[index] % every), index))
    for index in order[: total - sum(given)]:
        given[index] += 1
    while 0 in given:
        given[given.index(max(given))] -= 1
        given[given.index(0)] += 1
    return given
