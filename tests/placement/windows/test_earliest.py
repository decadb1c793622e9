"""The sweep over ends of claims against a count at every moment."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.placement.earliest import NEVER, Asked, Block, Ground, Grounds, find_earliest

SLOTS = 4
LAST = 24


@st.composite
def grounds(draw: st.DrawFn) -> Grounds:
    """A few nodes whose claims, as in the table, never overlap on a slot."""
    nodes, blocks = [], []
    for place in range(draw(st.integers(0, 3))):
        nodes.append(Ground(SLOTS, draw(st.integers(0, 15))))
        taken: list[tuple[int, int, int]] = []
        for _ in range(draw(st.integers(0, 5))):
            begins = draw(st.integers(0, 18))
            until = draw(st.one_of(st.just(NEVER), st.integers(begins + 1, begins + 8)))
            mask = draw(st.integers(1, 15))
            if all(not (mask & m and begins < u and b < until) for b, u, m in taken):
                taken.append((begins, until, mask))
                blocks.append((place, begins, until, mask))
    fixed = draw(st.dictionaries(st.sampled_from([(4, 0), (4, 1), (4, 2), (4, 4), (2, 2)]), st.integers(0, 2)))
    return Grounds(fixed, nodes, blocks)


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    """Any request on that scale."""
    length = draw(st.one_of(st.none(), st.integers(1, 9)))
    return Asked(
        draw(st.integers(1, 4)), draw(st.booleans()), draw(st.integers(1, 6)), draw(st.integers(0, 12)), length
    )


def fits(ground: Grounds, asked: Asked, begins: int) -> int:
    """How often it fits when it begins there: slot by slot, claim by claim."""
    ends = NEVER if asked.length is None else begins + asked.length
    total = 0
    for (slots, free), number in ground.fixed.items():
        total += number * ((slots == free == asked.gpus) if asked.whole else free // asked.gpus)
    for place, node in enumerate(ground.nodes):
        free = 0
        for slot in range(node.slot_count):
            if node.mask >> slot & 1 and not any(
                where == place and mask >> slot & 1 and first < ends and begins < until
                for where, first, until, mask in ground.blocks
            ):
                free += 1
        total += (free == node.slot_count == asked.gpus) if asked.whole else free // asked.gpus
    return total


@settings(max_examples=200, deadline=None)
@given(grounds(), requests())
def test_it_is_what_looking_at_every_moment_finds(ground: Grounds, asked: Asked) -> None:
    found = find_earliest(ground, asked, LAST)
    assert found.available == fits(ground, asked, asked.starts)
    moments = [t for t in range(asked.starts, LAST + 1) if fits(ground, asked, t) >= asked.count]
    assert found.earliest == (moments[0] if moments else None)


def one_node(*blocks: Block) -> Grounds:
    """One node of four slots."""
    return Grounds({}, [Ground(SLOTS, 15)], blocks)


ALL = Asked(gpus=4, whole=False, count=1, starts=0, length=5)


def test_back_to_back_is_no_overlap() -> None:
    between = one_node((0, 0, 10, 15), (0, 15, 20, 15))
    assert find_earliest(between, ALL, 100).earliest == 10
    assert find_earliest(between, replace(ALL, length=6), 100).earliest == 20


def test_beyond_the_horizon_is_never() -> None:
    ground = one_node((0, 0, 10, 15))
    assert find_earliest(ground, ALL, 10).earliest == 10
    assert find_earliest(ground, ALL, 9).earliest is None
    assert find_earliest(one_node((0, 0, NEVER, 1)), ALL, 100).earliest is None


def test_without_an_end_every_later_claim_conflicts() -> None:
    ground = one_node((0, 50, 60, 1))
    assert find_earliest(ground, replace(ALL, length=None), 100).earliest == 60
    assert find_earliest(ground, replace(ALL, length=50), 100).earliest == 0


def test_what_is_held_for_ever_leaves_the_rest_of_its_node() -> None:
    ground = one_node((0, 0, NEVER, 0b0011), (0, 0, 10, 0b1100))
    assert find_earliest(ground, replace(ALL, gpus=2), 100).earliest == 10
    assert find_earliest(ground, replace(ALL, gpus=3), 100).earliest is None
