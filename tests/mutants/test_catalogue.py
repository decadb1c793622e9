"""The catalogue of mutants matches the code: every mutant can be planted, and every noun has at least five."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.survivors import SURVIVORS

ROOT = Path(__file__).parents[2]
MUTANTS_MIN = 120
PER_NOUN_MIN = 5


def test_every_mutant_can_be_planted() -> None:
    """A mutant's text stands exactly once in its file, and its tests' files exist."""
    broken = [
        mutant.name
        for mutant in MUTANTS
        if mutant.old == mutant.new
        or (ROOT / mutant.file).read_text().count(mutant.old) != 1
        or not all((ROOT / test.split("::")[0]).exists() for test in mutant.tests)
    ]
    assert broken == []


def test_the_catalogue_is_complete() -> None:
    assert len(MUTANTS) >= MUTANTS_MIN
    per_noun = Counter(mutant.noun for mutant in MUTANTS)
    assert {noun: count for noun, count in per_noun.items() if count < PER_NOUN_MIN} == {}


def test_names_are_unique_and_survivors_are_known() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert set(SURVIVORS) <= set(names)
