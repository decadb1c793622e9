"""The pure half of placement: which classes serve a request, in which order, and why the others do not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.placement.inventory import FitClass, Layout, classes_of
from orchestrator.placement.ranking import Rejection, decide

EIGHT = (Layout(8, 4),)


def layouts() -> st.SearchStrategy[tuple[Layout, ...]]:
    """Pools of one to three node layouts."""
    one = st.integers(1, 8).flatmap(lambda n: st.builds(Layout, st.just(n), st.integers(1, n)))
    return st.lists(one, min_size=1, max_size=3, unique=True).map(lambda found: tuple(sorted(found)))


@given(layouts(), st.integers(1, 12))
def test_every_class_is_either_chosen_or_rejected_with_its_reason(pool: tuple[Layout, ...], gpus: int) -> None:
    decision = decide("gpu_slice", gpus, pool)
    chosen = [choice.fit for choice in decision.choices]
    rejected = [fit for fit, _ in decision.rejected]
    assert sorted(chosen + rejected) == list(classes_of(pool))
    assert all(fit.free < gpus for fit in rejected)


@given(layouts(), st.integers(1, 12))
def test_a_choice_takes_what_was_asked_and_no_more_than_is_free(pool: tuple[Layout, ...], gpus: int) -> None:
    for choice in decide("gpu_slice", gpus, pool).choices:
        assert choice.low + choice.high == gpus
        assert 0 <= choice.low <= choice.fit.low
        assert 0 <= choice.high <= choice.fit.high


@given(layouts(), st.integers(1, 12))
def test_no_choice_spans_halves_where_one_half_would_do(pool: tuple[Layout, ...], gpus: int) -> None:
    choices = decide("gpu_slice", gpus, pool).choices
    for choice in choices:
        assert choice.spans == (max(choice.fit.low, choice.fit.high) < gpus)
    assert [choice.spans for choice in choices] == sorted(choice.spans for choice in choices)


@given(layouts(), st.integers(1, 9))
def test_bare_metal_takes_whole_nodes_of_that_size_only(pool: tuple[Layout, ...], gpus: int) -> None:
    decision = decide("baremetal", gpus, pool)
    assert {choice.fit for choice in decision.choices} == {layout.whole for layout in pool if layout.slot_count == gpus}
    for fit, reason in decision.rejected:
        assert reason is (Rejection.NOT_WHOLE if fit.free >= gpus else Rejection.TOO_FEW_FREE)


def test_the_tightest_half_comes_first_and_an_empty_node_last() -> None:
    order = [choice.fit for choice in decide("gpu_slice", 2, EIGHT).choices]
    assert order[0] == FitClass(0, 2)
    assert order.index(FitClass(2, 4)) < order.index(FitClass(3, 3)) < order.index(FitClass(4, 4))
    assert order[-1] == FitClass(1, 1), "two halves with one free each is the last resort"


def test_a_large_slice_empties_one_half_and_takes_the_rest_beside() -> None:
    (choice, *_) = [c for c in decide("gpu_slice", 6, EIGHT).choices if c.fit == FitClass(4, 4)]
    assert (choice.low, choice.high) == (4, 2)


def test_nothing_serves_more_than_the_largest_node() -> None:
    assert decide("gpu_slice", 9, EIGHT).choices == ()
