"""Which mutants `make mutants` plants: of each noun the quickest ones, from as many source files as it has mutants in.

`seconds.json` holds how long the tests that mutants name take (`python -m tests.mutants.selection.recording`). Whatever it
does not name counts as `UNRECORDED_SECONDS`, so that a new mutant is selected once its tests are recorded, or where its noun has
few others.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.mutants.mutant import Mutant

RECORD = Path(__file__).with_name("seconds.json")
PER_NOUN = 8
START_SECONDS = 10.0
"""What a pytest process costs before its first test: imports, PostgreSQL, the migrations."""
UNRECORDED_SECONDS = 60.0
PARALLEL = 2


@functools.cache
def recorded() -> dict[str, float]:
    """Seconds of the tests under each node id."""
    seconds: dict[str, float] = json.loads(RECORD.read_text())
    return seconds


def seconds_of(mutant: Mutant) -> float:
    """How long it takes to judge the mutant, if its last test catches it."""
    return START_SECONDS + sum(recorded().get(test, UNRECORDED_SECONDS) for test in mutant.tests)


def selected(mutants: Sequence[Mutant]) -> list[Mutant]:
    """At most `PER_NOUN` of each noun: the quickest one of every source file, then the next of every file, and so on."""
    of_noun: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        of_noun[mutant.noun].append(mutant)
    chosen = {mutant.name for each in of_noun.values() for mutant in _of_every_file(each)[:PER_NOUN]}
    return [mutant for mutant in mutants if mutant.name in chosen]


def _of_every_file(mutants: Iterable[Mutant]) -> list[Mutant]:
    """The mutants in the order in which they are selected."""
    of_file: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in sorted(mutants, key=lambda one: (seconds_of(one), one.name)):
        of_file[mutant.file].append(mutant)
    rounds = itertools.zip_longest(*of_file.values())
    return [mutant for one_of_each in rounds for mutant in one_of_each if mutant is not None]


def estimate_without(mutants: Sequence[Mutant]) -> float:
    """Seconds of their tests without a mutant, each test once, on `PARALLEL` processes."""
    tests = {test for mutant in mutants for test in mutant.tests}
    return START_SECONDS + sum(recorded().get(test, UNRECORDED_SECONDS) for test in tests) / PARALLEL


def estimate(mutants: Sequence[Mutant]) -> float:
    """Seconds until all are judged, `PARALLEL` at once: first their tests without a mutant, then each mutant."""
    return estimate_without(mutants) + sum(map(seconds_of, mutants)) / PARALLEL
