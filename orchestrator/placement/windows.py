"""Chooses nodes and slots for a window, by the rules of open-ended placement. Pure and deterministic.

The input names the slots of each node that are free throughout the window. Slots that are free without an end are chosen
first (DESIGN §5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from uuid import UUID

from orchestrator.catalogue.shapes import Shape
from orchestrator.placement.inventory import FitClass, Layout
from orchestrator.placement.ranking import Choice, Decision, Rejection

_RANKS = 2**31  # as many as `nodes.placement_rank` has


@dataclass(frozen=True, slots=True)
class FreeNode:
    """A node and the mask of its slots that are free throughout the window. `rank` breaks ties between nodes."""

    node_id: UUID
    unit_base: int
    layout: Layout
    rank: int
    mask: int

    @property
    def fit(self) -> FitClass:
        """The class of its free slots."""
        low = self.mask & ((1 << self.layout.half_slots) - 1)
        return FitClass(low.bit_count(), (self.mask >> self.layout.half_slots).bit_count())


@dataclass(frozen=True, slots=True)
class Pick:
    """Node and slots of one claim."""

    node_id: UUID
    unit_base: int
    mask: int


@dataclass(frozen=True, slots=True)
class WindowDecision:
    """Picks in the order of choice, and why each node without a pick was rejected."""

    picks: tuple[Pick, ...]
    rejected: tuple[tuple[UUID, Rejection], ...]


def choose(
    decision: Decision,
    shape: str,
    gpus: int,
    always_free: Sequence[FreeNode],
    in_window: Sequence[FreeNode],
    count: int,
    spread: int = 0,
) -> WindowDecision:
    """Up to `count` picks of `gpus` slots, each on one node; fewer picks mean that there is no room for more.

    `decision` ranks the classes of the pool for `gpus`. `always_free`: nodes by slots that are free without an end;
    `in_window`: nodes by slots that are free in the window (a superset for nodes in both), used only if the first do not
    suffice. `spread`: 0 chooses the best node; a random number chooses any node that serves, after lost races.
    """
    first = _Chooser(decision, shape, gpus, always_free, spread)
    picks = first.choose(count)
    if len(picks) == count:
        return WindowDecision(tuple(picks), first.rejected())
    taken: dict[UUID, int] = {}
    for pick in picks:
        taken[pick.node_id] = taken.get(pick.node_id, 0) | pick.mask
    left = [replace(node, mask=node.mask & ~taken.get(node.node_id, 0)) for node in in_window]
    second = _Chooser(decision, shape, gpus, left, spread, frozenset(taken))
    picks += second.choose(count - len(picks))
    gave = {pick.node_id for pick in picks}
    rejected = dict(first.rejected()) | dict(second.rejected())
    return WindowDecision(tuple(picks), tuple((node, why) for node, why in rejected.items() if node not in gave))


class _Chooser:
    """Takes the best node repeatedly, as `place_together` does for a batch of creates."""

    def __init__(
        self,
        decision: Decision,
        shape: str,
        gpus: int,
        nodes: Sequence[FreeNode],
        spread: int,
        used: frozenset[UUID] = frozenset(),
    ) -> None:
        self._choices = {choice.fit: (place, choice) for place, choice in enumerate(decision.choices)}
        self._gpus = gpus
        self._whole_slots = gpus if shape == Shape.BAREMETAL else None
        self._spread = spread
        self._queue: list[tuple[int, bool, int, UUID, FreeNode]] = []
        self._gave: set[UUID] = set(used)
        self._nodes = nodes
        for node in nodes:
            self._enqueue(node)

    def choose(self, count: int) -> list[Pick]:
        """The best picks, at most `count`."""
        picks: list[Pick] = []
        while self._queue and len(picks) < count:
            *_, node = heappop(self._queue)
            mask = _take_slots(node, self._choices[node.fit][1], self._spread)
            picks.append(Pick(node.node_id, node.unit_base, mask))
            self._gave.add(node.node_id)
            self._enqueue(replace(node, mask=node.mask & ~mask))
        return picks

    def rejected(self) -> tuple[tuple[UUID, Rejection], ...]:
        """Why each node without a pick cannot serve the request."""
        return tuple(
            (node.node_id, Rejection.TOO_FEW_FREE if node.fit.free < self._gpus else Rejection.NOT_WHOLE)
            for node in self._nodes
            if not self._serves(node) and node.node_id not in self._gave
        )

    def _serves(self, node: FreeNode) -> bool:
        return node.fit in self._choices and self._whole_slots in (None, node.layout.slot_count)

    def _enqueue(self, node: FreeNode) -> None:
        """Order by class, then nodes with a pick first, so that fewer nodes are locked, then by rank."""
        if self._serves(node):
            place = 0 if self._spread else self._choices[node.fit][0]
            rank = (node.rank + self._spread) % _RANKS
            heappush(self._queue, (place, node.node_id not in self._gave, rank, node.node_id, node))


def _take_slots(node: FreeNode, choice: Choice, spread: int) -> int:
    half, slots = node.layout.half_slots, node.layout.slot_count
    low = _take_bits(node.mask & ((1 << half) - 1), choice.low, half, spread)
    return low | _take_bits(node.mask >> half, choice.high, slots - half, spread) << half


def _take_bits(mask: int, count: int, width: int, spread: int) -> int:
    """`count` bits of the mask, the lowest first; with `spread`, from that bit on, cyclically."""
    taken = 0
    for step in range(width):
        bit = 1 << (step + spread) % width
        if mask & bit and taken.bit_count() < count:
            taken |= bit
    return taken
