"""What an act of the demo claims, and whether it held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from berth.process.json_objects import JsonObject

Say = Callable[[str], None]


@dataclass
class Act:
    """One act: checks that must all hold, figures to report, latencies in milliseconds."""

    letter: str
    title: str
    checks: list[tuple[str, bool]] = field(default_factory=list)
    figures: JsonObject = field(default_factory=dict)
    create_ms: list[float] = field(default_factory=list)
    active_ms: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        """Whether the act did all that it claims. An act without a check claims nothing, and that is a failure."""
        return bool(self.checks) and all(held for _, held in self.checks)

    def check(self, claim: str, held: bool) -> None:
        """Record whether a claim held."""
        self.checks.append((claim, held))

    def as_data(self) -> JsonObject:
        """The act in the report."""
        return {
            "act": self.letter, "title": self.title, "held": self.held, "seconds": round(self.seconds, 2),
            "checks": [{"claim": claim, "held": held} for claim, held in self.checks], **self.figures,
            "create_ms": spread(self.create_ms), "post_to_active_ms": spread(self.active_ms),
        }  # fmt: skip


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all values do not exceed (nearest rank); None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    rank = max(1, -(-int(share * 1000) * len(ordered) // 1000))
    return ordered[min(rank, len(ordered)) - 1]


def spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """Count, median and 99th percentile, rounded to a tenth of a millisecond."""
    p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
    return {
        "count": len(values),
        "p50": None if p50 is None else round(p50, 1),
        "p99": None if p99 is None else round(p99, 1),
    }
