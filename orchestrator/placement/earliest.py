"""How often a request fits in a window, and from when on it fits: a sweep over the ends of claims. Pure.

Times are integers (microseconds, any epoch), so that nothing is lost to rounding. A claim `[from, until)` on a slot keeps a
window of length D from beginning at any t with from - D < t < until; t = from - D and t = until are back to back. What is
free only grows where a claim ends, so the earliest beginning is the one asked for, or the end of a claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NEVER = 2**63 - 1
"""The end of a claim that has none; as Postgres sends an infinite time."""

Block = tuple[int, int, int, int]
"""A claim that ends or begins later: place of its node in `Grounds.nodes`, from, until, mask of slots."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A node whose claims are told by blocks: its slots, and the mask of those that are in service."""

    slot_count: int
    mask: int


@dataclass(frozen=True, slots=True)
class Grounds:
    """A pool in time. `fixed`: how many nodes of so many slots have so many free at any time, (slots, free) -> number."""

    fixed: dict[tuple[int, int], int]
    nodes: Sequence[Ground]
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Asked:
    """`count` times `gpus` slots, each on one node, for `length` (None: open-ended). `whole`: bare metal, nodes of exactly
    `gpus` slots."""

    gpus: int
    whole: bool
    count: int
    starts: int
    length: int | None

    def capacity(self, slot_count: int, free: int) -> int:
        """How often it fits on a node of so many slots, of which so many are free throughout."""
        if self.whole:
            return int(free == slot_count == self.gpus)
        return free // self.gpus


@dataclass(frozen=True, slots=True)
class Found:
    """How often it fits at the time asked for, and the earliest beginning from which it fits `count` times, if any."""

    available: int
    earliest: int | None


def find_earliest(grounds: Grounds, asked: Asked, horizon: int) -> Found:
    """Where the request fits, looking at beginnings from `asked.starts` to `horizon`."""
    fixed = sum(asked.capacity(*fit) * number for fit, number in grounds.fixed.items())
    sweep = _Sweep(grounds, asked)
    available = fixed + sweep.total
    if available >= asked.count:
        return Found(available, asked.starts)
    for moment in sweep.moments(horizon):
        if fixed + sweep.total >= asked.count:
            return Found(available, moment)
    return Found(available, None)


class _Sweep:
    """Moves the beginning through time; `total` is how often the request fits on the nodes with blocks."""

    def __init__(self, grounds: Grounds, asked: Asked) -> None:
        self._nodes = grounds.nodes
        self._asked = asked
        self._active: list[list[int]] = [[] for _ in grounds.nodes]
        self._later: list[tuple[int, int, int]] = []
        self._ends: list[tuple[int, int, int]] = []
        able = [asked.capacity(node.slot_count, node.mask.bit_count()) > 0 for node in grounds.nodes]
        for place, begins, until, mask in grounds.blocks:
            if until <= asked.starts or not able[place]:
                continue
            blocks_from = None if asked.length is None else begins - asked.length
            if blocks_from is None or blocks_from < asked.starts:
                self._active[place].append(mask)
            else:
                self._later.append((blocks_from, place, mask))
            if until < NEVER:
                self._ends.append((until, place, mask))
        self._capacities = [self._capacity(place) for place in range(len(grounds.nodes))]
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
                capacity = self._capacity(place)
                self.total += capacity - self._capacities[place]
                self._capacities[place] = capacity
            yield moment

    def _capacity(self, place: int) -> int:
        node = self._nodes[place]
        free = node.mask
        for mask in self._active[place]:
            free &= ~mask
        return self._asked.capacity(node.slot_count, free.bit_count())
