"""What `berth verify` finds in a database beside which no relay runs."""

from __future__ import annotations

from orchestrator.verification import run_checks
from orchestrator.verification.verdict import Bounds

DAY_SECONDS = 86_400.0


def broken_promises(url: str) -> dict[str, list[str]]:
    """The violations, by promise; events that wait for their version, however slow the test was, are none."""
    verdicts = run_checks(url, Bounds(outbox_seconds=DAY_SECONDS))
    return {verdict.promise: verdict.violations for verdict in verdicts if not verdict.kept}
