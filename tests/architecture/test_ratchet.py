"""The code base only gets better: sizes stay within their bounds, and the debt recorded in `ratchet.json` only shrinks.

After paying debt off: `python -m tests.architecture.ratchet`.
"""

from __future__ import annotations

import functools

import pytest

from tests.architecture import measures
from tests.architecture.ratchet import MEASURES, recorded


@functools.cache
def measured(measure: str) -> dict[str, int]:
    """What the measure finds in the repository."""
    return MEASURES[measure]()


@pytest.mark.parametrize("measure", MEASURES)
def test_debt_does_not_grow(measure: str) -> None:
    allowed = recorded()[measure]
    grown = {name: found for name, found in measured(measure).items() if found > allowed.get(name, 0)}
    assert grown == {}, f"{measure}: beyond the bound, or more than recorded"


@pytest.mark.parametrize("measure", MEASURES)
def test_debt_that_was_paid_is_not_recorded(measure: str) -> None:
    paid = {name: debt for name, debt in recorded()[measure].items() if measured(measure).get(name, 0) < debt}
    assert paid == {}, f"{measure}: run `python -m tests.architecture.ratchet`"


@pytest.mark.parametrize(
    "prose",
    [
        "Whoever reads this",
        "which nobody asked for",
        "the version that it is told",
        "it stands in the row",
        "an id of its own",
    ],
)
def test_the_word_list_finds_stand_ins(prose: str) -> None:
    assert measures.STAND_INS.search(prose)


@pytest.mark.parametrize(
    "prose", ["The relay publishes the event.", "a standing order", "the whole list", "Of each node"]
)
def test_the_word_list_leaves_plain_english_alone(prose: str) -> None:
    assert not measures.STAND_INS.search(prose)
