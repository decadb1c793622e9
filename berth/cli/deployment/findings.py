"""One finding of `berth doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CLOCK_SECONDS_MAX = 5.0


@dataclass(frozen=True)
class Finding:
    """The result of one check. `skipped`: there was nothing to check."""

    subject: str
    verdict: Literal["ok", "warning", "bad", "skipped"]
    detail: str


def clock_finding(server: str, seconds_ahead: float) -> Finding:
    """How far a server's clock is from this machine's. Deadlines depend on Postgres's clock alone."""
    apart = abs(seconds_ahead)
    if apart <= CLOCK_SECONDS_MAX:
        return Finding(f"clock {server}", "ok", f"within {CLOCK_SECONDS_MAX:g} s of this machine's")
    way = "ahead of" if seconds_ahead > 0 else "behind"
    return Finding(f"clock {server}", "warning", f"{apart:.1f} s {way} this machine's; let both follow one time server")
