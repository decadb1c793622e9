"""Checks the promises of DESIGN §1 on a live database, reading only.

One module per promise; each has one function from a connection to a `Verdict`. `run_checks` runs them all against one
snapshot, so that what moves meanwhile cannot look like a violation. History is scanned with window functions and
running maxima, never joined with itself (TRAPS: 100,000 claims in 0.12 s instead of not at all).
"""

from orchestrator.verification.all_checks import CHECKS, run_checks
from orchestrator.verification.verdict import Bounds, Verdict

__all__ = ["CHECKS", "Bounds", "Verdict", "run_checks"]
