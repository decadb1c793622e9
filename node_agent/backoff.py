"""How long to wait before trying again."""

from __future__ import annotations

import random


class Backoff:
    """Exponential with full jitter between bounds (AWS Architecture Blog, "Exponential Backoff And Jitter").

    Never less than half of the current step, so that a hundred agents spread out and none spins.
    """

    def __init__(self, first_seconds: float = 0.1, most_seconds: float = 10.0) -> None:
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._step_seconds = first_seconds

    def next_seconds(self) -> float:
        """The pause before the next attempt; each call doubles the step up to its bound."""
        step, self._step_seconds = self._step_seconds, min(self._step_seconds * 2, self._most_seconds)
        return step * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start from the first step again, after a success."""
        self._step_seconds = self._first_seconds
