"""Pauses between attempts."""

from __future__ import annotations

import random


class Backoff:
    """Exponential backoff with jitter: each pause is between half of the current step and the step.

    The step doubles from `first_seconds` to `most_seconds` (AWS Architecture Blog, "Exponential Backoff And Jitter").
    """

    def __init__(self, first_seconds: float = 0.1, most_seconds: float = 10.0) -> None:
        self._first_seconds = min(first_seconds, most_seconds)
        self._most_seconds = most_seconds
        self._step_seconds = self._first_seconds

    def next_seconds(self) -> float:
        """Return the pause before the next attempt and double the step."""
        step, self._step_seconds = self._step_seconds, min(self._step_seconds * 2, self._most_seconds)
        return jittered(step, 0.5, 1.0)

    def reset(self) -> None:
        """Return to the first step, after a success."""
        self._step_seconds = self._first_seconds


def jittered(seconds: float, least: float = 0.8, most: float = 1.2) -> float:
    """Return `seconds` times a random factor, so that processes that collided do not collide again."""
    return seconds * random.uniform(least, most)
