"""How often a request fits in a window, and the earliest time from which it fits: a sweep over the ends of claims. Pure.

Times are integers (microseconds, any epoch), to avoid rounding. A claim `[from, until)` on a slot excludes a window of length
D that begins at t with from - D < t < until; t = from - D and t = until are back to back. Free capacity grows only where a
claim ends, so the earliest beginning is the requested one, or the end of a claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

NEVER = 2**63 - 1
"""The end of an open-ended claim, as PostgreSQL sends infinity."""

Block = tuple[int, int, int, int]
"""A claim that ends or begins later: index of its node in `Grounds.nodes`, from, until, mask of slots."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A node with blocks: its number of slots, and the mask of those in service."""

    slot_count: int
    mask: int


@dataclass(frozen=True, slots=True)
class Grounds:
    """A pool over time. `fixed`: number of nodes without blocks, by (slots, free slots)."""

    fixed: dict[tuple[int, int], int]
    nodes: Sequence[Ground]
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for `count` times `gpus` slots, each on one node, for `length` (None: open-ended). `whole`: bare metal, nodes of
    exactly `gpus` slots."""

    gpus: int
    whole: bool
    count: int
    starts: int
    length: int | None

    def capacity(self, slot_count: int, free: int) -> int:
        """How often the request fits on a node with `free` of its `slot_count` slots free throughout."""
        if self.whole:
            return int(free == slot_count == self.gpus)
        return free // self.gpus

    def usable(self, slot_count: int, free: int) -> int:
        """How many of the free slots can be rented: bare metal is rented whole."""
        return free if not self.whole or free == slot_count else 0


class Never(StrEnum):
    """Why a request fits at no time."""

    TOO_FEW_NODES = "too_few_nodes"
    BUSY_UNTIL_HORIZON = "busy_until_horizon"


@dataclass(frozen=True, slots=True)
class Found:
    """How often the request fits in its window, and the earliest time from which it fits `count` times, or why never.

    `free_gpus`: slots that are free throughout the window; `sizes`: the numbers of free slots of single nodes.
    """

    available: int
    earliest: int | None
    never: Never | None
    free_gpus: int
    sizes: frozenset[int]


def find_earliest(grounds: Grounds, asked: Asked, horizon: int) -> Found:
    """Evaluate the request for every beginning from `asked.starts` to `horizon`."""
    fixed = sum(asked.capacity(*fit) * number for fit, number in grounds.fixed.items())
    sweep = _Sweep(grounds, asked)
    free = [asked.usable(node.slot_count, count) for node, count in zip(grounds.nodes, sweep.free, strict=True)]
    fixed_free = [(asked.usable(*fit), number) for fit, number in grounds.fixed.items() if number]
    available = fixed + sweep.total
    earliest: int | None = None
    if available >= asked.count:
        earliest = asked.starts
    else:
        moments = sweep.moments(horizon)
        earliest = next((moment for moment in moments if fixed + sweep.total >= asked.count), None)
    never = None
    if earliest is None:
        whole = sum(asked.capacity(node.slot_count, node.mask.bit_count()) for node in grounds.nodes)
        whole += sum(asked.capacity(slots, slots) * number for (slots, _), number in grounds.fixed.items())
        never = Never.BUSY_UNTIL_HORIZON if whole >= asked.count else Never.TOO_FEW_NODES
    return Found(
        available,
        earliest,
        never,
        free_gpus=sum(free) + sum(slots * number for slots, number in fixed_free),
        sizes=frozenset(free) | {slots for slots, _ in fixed_free},
    )


class _Sweep:
    """Advances the beginning of the window; `total` is how often the request fits on the nodes with blocks.

    `free`: free slots of each node throughout the requested window.
    """

    def __init__(self, grounds: Grounds, asked: Asked) -> None:
        self._nodes = grounds.nodes
        self._asked = asked
        self._active: list[list[int]] = [[] for _ in grounds.nodes]
        self._later: list[tuple[int, int, int]] = []
        self._ends: list[tuple[int, int, int]] = []
        starts, length = asked.starts, 2 * NEVER if asked.length is None else asked.length
        # A node on which open-ended claims leave too few slots never fits, so its claims are skipped.
        lasting = [node.mask for node in grounds.nodes]
        for place, begins, until, mask in grounds.blocks:
            if until == NEVER and begins - length < starts:
                lasting[place] &= ~mask
        able = [
            asked.capacity(node.slot_count, mask.bit_count()) > 0
            for node, mask in zip(grounds.nodes, lasting, strict=True)
        ]
        for place, begins, until, mask in grounds.blocks:
            if until <= starts:
                continue
            if begins - length < starts:
                self._active[place].append(mask)
            elif able[place]:
                self._later.append((begins - length, place, mask))
            if able[place] and until < NEVER:
                self._ends.append((until, place, mask))
        self.free = [self._free(place) for place in range(len(grounds.nodes))]
        self._capacities = [
            asked.capacity(node.slot_count, free) for node, free in zip(grounds.nodes, self.free, strict=True)
        ]
        self.total = sum(self._capacities)

    def moments(self, horizon: int) -> Iterator[int]:
        """Each end of a claim until `horizon`, in order, with `total` as it is for a window that begins there."""
        self._later.sort()
        self._ends.sort()
        begun = ended = 0
        while ended < len(self._ends):
            moment = self._ends[ended][0]
            if moment > horizon:
                return
            touched = set()
            while begun < len(self._later) and self._later[begun][0] < moment:
                _, place, mask = self._later[begun]
                self._active[place].append(mask)
                touched.add(place)
                begun += 1
            while ended < len(self._ends) and self._ends[ended][0] == moment:
                _, place, mask = self._ends[ended]
                self._active[place].remove(mask)
                touched.add(place)
                ended += 1
            for place in touched:
                capacity = self._asked.capacity(self._nodes[place].slot_count, self._free(place))
                self.total += capacity - self._capacities[place]
                self._capacities[place] = capacity
            yield moment

    def _free(self, place: int) -> int:
        free = self._nodes[place].mask
        for mask in self._active[place]:
            free &= ~mask
        return free.bit_count()
