"""The catalogue of mutants matches the code: every mutant can be planted, and every noun has at least five."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import SURVIVORS
from tests.mutants.selection.rule import estimate, selected

ROOT = Path(__file__).parents[2]
MUTANTS_MIN = 120
PER_NOUN_MIN = 5
SELECTION_SECONDS_MAX = 60 * 60
NOUNS = frozenset(
    {
        "allocations", "reservations", "placement", "nodes", "tasks", "catalogue", "tenants", "operations", "log",
        "keyvalue", "webhooks", "networks", "notifications", "billing", "audit", "worker", "relay", "agent", "client",
        "verification", "edge", "database", "security", "archive", "backup", "maintenance", "wipes", "consoles",
    }
)  # fmt: skip


def exists(node_id: str) -> bool:
    """Whether the test file contains this test function, if the node id names one."""
    file, _, function = node_id.partition("[")[0].partition("::")
    path = ROOT / file
    return path.exists() and (not function or f"def {function}(" in path.read_text())


def test_every_mutant_can_be_planted() -> None:
    """A mutant's text occurs exactly once in its file, and its tests exist."""
    broken = [
        mutant.name
        for mutant in MUTANTS
        if mutant.old == mutant.new
        or not (ROOT / mutant.file).is_file()
        or (ROOT / mutant.file).read_text().count(mutant.old) != 1
        or not all(map(exists, mutant.tests))
    ]
    assert broken == []


def test_every_noun_has_mutants() -> None:
    assert len(MUTANTS) >= MUTANTS_MIN
    per_noun = Counter(mutant.noun for mutant in MUTANTS)
    assert per_noun.keys() == NOUNS
    assert {noun: count for noun, count in per_noun.items() if count < PER_NOUN_MIN} == {}


def test_the_selection_has_mutants_of_every_noun_and_ends_within_its_time() -> None:
    chosen = selected(MUTANTS)
    assert len(chosen) >= MUTANTS_MIN
    per_noun = Counter(mutant.noun for mutant in chosen)
    assert {noun: per_noun[noun] for noun in NOUNS if per_noun[noun] < PER_NOUN_MIN} == {}
    assert estimate(chosen) <= SELECTION_SECONDS_MAX


def test_names_are_unique_and_survivors_have_reasons() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert set(SURVIVORS) <= set(names)
    assert all(len(reason) > 20 for reason in SURVIVORS.values())
