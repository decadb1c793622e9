"""How long to pause before the next attempt."""

from __future__ import annotations

import random

FIRST_SECONDS = 0.05


class Backoff:
    """Pauses that double from 50 ms to `seconds_max`, each shortened at random by up to half, so that relays spread."""

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._seconds = FIRST_SECONDS

    def next_seconds(self) -> float:
        """The pause before the next attempt."""
        pause = min(self._seconds, self._seconds_max) * random.uniform(0.5, 1.0)
        self._seconds = min(self._seconds * 2, self._seconds_max)
        return pause

    def reset(self) -> None:
        """An attempt succeeded: the next pause is short again."""
        self._seconds = FIRST_SECONDS


def spread(seconds: float) -> float:
    """`seconds`, give or take a fifth at random: two relays that collided do not collide again in step."""
    return seconds * random.uniform(0.8, 1.2)
