"""Mutants that no test catches, each with the reason why that is acceptable."""

from __future__ import annotations

SURVIVORS: dict[str, str] = {}
"""Reason by the mutant's name."""
