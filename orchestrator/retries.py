"""How often something is tried, and how the pauses between attempts grow. Pure."""

from __future__ import annotations

from dataclasses import dataclass

DOUBLINGS_MAX = 30


@dataclass(frozen=True, slots=True)
class Retries:
    """At most `attempts_max` attempts; the first pause is `first_seconds`, each next one twice as long, up to `max_seconds`."""

    attempts_max: int
    first_seconds: float
    max_seconds: float

    def left_after(self, attempt: int) -> bool:
        """Whether another attempt may follow this one (attempts count from 1)."""
        return attempt < self.attempts_max

    def pause_seconds(self, attempt: int) -> float:
        """The pause after this attempt."""
        return min(self.max_seconds, self.first_seconds * 2.0 ** min(attempt - 1, DOUBLINGS_MAX))
