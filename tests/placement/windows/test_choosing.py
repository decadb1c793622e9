"""Pure placement over windows against a model that tries everything."""

from __future__ import annotations

import uuid
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.placement.inventory import FitClass, Layout
from orchestrator.placement.ranking import Rejection, decide
from orchestrator.placement.windows import FreeNode, choose


@st.composite
def nodes(draw: st.DrawFn, layouts: tuple[Layout, ...]) -> list[FreeNode]:
    """Up to five nodes with any slots free; ranks may be equal."""
    found = []
    for number in range(draw(st.integers(0, 5))):
        layout = draw(st.sampled_from(layouts))
        mask = draw(st.integers(0, (1 << layout.slot_count) - 1))
        found.append(FreeNode(uuid.UUID(int=number), 100 * number, layout, draw(st.integers(0, 2)), mask))
    return found


LAYOUTS = (Layout(4, 2), Layout(6, 3))
SHAPES = st.sampled_from(["gpu_slice", "baremetal"])


def most(masks: list[tuple[int, Layout]], shape: str, gpus: int) -> int:
    """How many claims fit at most, by trying every set of slots on every node."""
    total = 0
    for mask, layout in masks:
        if shape == "baremetal":
            total += layout.slot_count == gpus and mask == (1 << layout.slot_count) - 1
            continue
        free = [bit for bit in range(layout.slot_count) if mask >> bit & 1]
        best = 0
        while any(True for _ in combinations(free, gpus)):
            free = free[gpus:]
            best += 1
        total += best
    return total


@given(nodes(LAYOUTS), SHAPES, st.integers(1, 6), st.integers(1, 8))
def test_as_many_as_fit_are_picked_and_no_slot_twice(found: list[FreeNode], shape: str, gpus: int, count: int) -> None:
    decision = choose(decide(shape, gpus, LAYOUTS), shape, gpus, found, (), count)
    assert len(decision.picks) == min(count, most([(n.mask, n.layout) for n in found], shape, gpus))
    left = {node.node_id: node.mask for node in found}
    for pick in decision.picks:
        assert pick.mask.bit_count() == gpus
        assert pick.mask & ~left[pick.node_id] == 0
        left[pick.node_id] &= ~pick.mask


@given(nodes(LAYOUTS), SHAPES, st.integers(1, 6))
def test_the_one_picked_is_the_best_by_class_and_then_by_rank(found: list[FreeNode], shape: str, gpus: int) -> None:
    ranked = decide(shape, gpus, LAYOUTS)
    decision = choose(ranked, shape, gpus, found, (), 1)
    order = {choice.fit: place for place, choice in enumerate(ranked.choices)}
    serving = [n for n in found if n.fit in order and (shape == "gpu_slice" or n.layout.slot_count == gpus)]
    best = min(serving, key=lambda node: (order[node.fit], node.rank, node.node_id), default=None)
    assert [pick.node_id for pick in decision.picks] == ([] if best is None else [best.node_id])
    if best is not None:
        (pick,) = decision.picks
        choice = ranked.choices[order[best.fit]]
        half = best.layout.half_slots
        low, high = pick.mask & ((1 << half) - 1), pick.mask >> half
        assert (low.bit_count(), high.bit_count()) == (choice.low, choice.high)


@given(nodes(LAYOUTS), SHAPES, st.integers(1, 6), st.data())
def test_what_is_free_for_ever_goes_first_and_windows_fill_the_rest(
    in_window: list[FreeNode], shape: str, gpus: int, data: st.DataObject
) -> None:
    always = []
    for node in in_window:
        mask = node.mask & data.draw(st.integers(0, 63))
        always.append(FreeNode(node.node_id, node.unit_base, node.layout, node.rank, mask))
    ranked = decide(shape, gpus, LAYOUTS)
    count = data.draw(st.integers(1, 8))
    decision = choose(ranked, shape, gpus, always, in_window, count)
    first = choose(ranked, shape, gpus, always, (), count)
    assert decision.picks[: len(first.picks)] == first.picks
    left = {node.node_id: node.mask for node in in_window}
    for pick in decision.picks:
        assert pick.mask & ~left[pick.node_id] == 0
        left[pick.node_id] &= ~pick.mask
    if len(decision.picks) < count:
        assert most([(left[n.node_id], n.layout) for n in in_window], shape, gpus) == 0


@given(nodes(LAYOUTS), SHAPES, st.integers(1, 6), st.integers(1, 8))
def test_every_node_gave_something_or_has_its_reason(found: list[FreeNode], shape: str, gpus: int, count: int) -> None:
    decision = choose(decide(shape, gpus, LAYOUTS), shape, gpus, found, (), count)
    gave = {pick.node_id for pick in decision.picks}
    reasons = dict(decision.rejected)
    assert not gave & set(reasons)
    for node in found:
        if node.node_id in gave or (node.node_id not in reasons and len(decision.picks) == count):
            continue
        expected = Rejection.TOO_FEW_FREE if node.mask.bit_count() < gpus else Rejection.NOT_WHOLE
        assert reasons[node.node_id] is expected


@given(nodes(LAYOUTS), SHAPES, st.integers(1, 6), st.integers(1, 8), st.integers(1, 2**31 - 1))
def test_an_outrun_create_gets_as_much_elsewhere(
    found: list[FreeNode], shape: str, gpus: int, count: int, spread: int
) -> None:
    ranked = decide(shape, gpus, LAYOUTS)
    picks = choose(ranked, shape, gpus, found, (), count, spread).picks
    assert len(picks) == len(choose(ranked, shape, gpus, found, (), count).picks)
    left = {node.node_id: node.mask for node in found}
    for pick in picks:
        assert pick.mask.bit_count() == gpus
        assert pick.mask & ~left[pick.node_id] == 0
        left[pick.node_id] &= ~pick.mask


def test_every_place_is_found_by_some_of_the_outrun_creates() -> None:
    whole = [FreeNode(uuid.UUID(int=n), 0, Layout(4, 2), 2**30 * n, 0b1111) for n in range(2)]
    ranked = decide("gpu_slice", 1, LAYOUTS)
    spreads = [step * (2**31 // 10) + 1 + step % 2 for step in range(10)]
    picks = [choose(ranked, "gpu_slice", 1, whole, (), 1, spread).picks[0] for spread in spreads]
    assert {pick.node_id for pick in picks} == {node.node_id for node in whole}
    assert len({pick.mask for pick in picks}) == 2, "equal halves: either slot of the first"


def test_a_node_that_gave_already_is_taken_again_before_its_equals() -> None:
    whole = [FreeNode(uuid.UUID(int=n), 0, Layout(4, 2), n, 0b1111) for n in range(2)]
    ranked = decide("gpu_slice", 1, LAYOUTS)
    picks = choose(ranked, "gpu_slice", 1, whole, (), 4).picks
    assert [pick.mask for pick in picks] == [0b0001, 0b0010, 0b0100, 0b1000]
    assert {pick.node_id for pick in picks} == {uuid.UUID(int=0)}
    assert whole[0].fit == FitClass(2, 2)
