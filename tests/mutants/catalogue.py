"""The catalogue of mutants: all of them, whichever module lists them."""

from __future__ import annotations

from tests.mutants import catalogue_a, catalogue_b
from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [*catalogue_a.MUTANTS, *catalogue_b.MUTANTS]
