"""Ranks node classes for a request: NUMA fit first, then best fit. Pure and deterministic.

Ties inside a class are broken in the database by a random rank drawn at enrolment, never by the id, so that load spreads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from orchestrator.catalogue.shapes import Shape
from orchestrator.placement.inventory import FitClass, Layout, classes_of


class Rejection(StrEnum):
    """Why a class cannot serve a request."""

    TOO_FEW_FREE = "too_few_free"
    NOT_WHOLE = "not_whole"


@dataclass(frozen=True, slots=True)
class Choice:
    """A class that serves the request, and how many slots to take from each half."""

    fit: FitClass
    low: int
    high: int

    @property
    def spans(self) -> bool:
        """Whether the slots lie in both NUMA halves."""
        return self.low > 0 and self.high > 0


@dataclass(frozen=True, slots=True)
class Decision:
    """The classes to try, best first, and why each of the others was rejected."""

    choices: tuple[Choice, ...]
    rejected: tuple[tuple[FitClass, Rejection], ...]


@lru_cache(maxsize=4096)
def decide(shape: str, gpus: int, layouts: tuple[Layout, ...]) -> Decision:
    """The order in which to try classes for `gpus` slots on one node of a pool with these layouts."""
    classes = classes_of(layouts)
    if shape == Shape.BAREMETAL:
        return _decide_whole(gpus, layouts, classes)
    fitting = [_choose(fit, gpus) for fit in classes if fit.free >= gpus]
    rejected = tuple((fit, Rejection.TOO_FEW_FREE) for fit in classes if fit.free < gpus)
    return Decision(tuple(sorted(fitting, key=_rank)), rejected)


def _decide_whole(gpus: int, layouts: tuple[Layout, ...], classes: tuple[FitClass, ...]) -> Decision:
    whole = sorted({layout.whole for layout in layouts if layout.slot_count == gpus})
    rejected = tuple(
        (fit, Rejection.NOT_WHOLE if fit.free >= gpus else Rejection.TOO_FEW_FREE)
        for fit in classes
        if fit not in whole
    )
    return Decision(tuple(Choice(fit, fit.low, fit.high) for fit in whole), rejected)


def _choose(fit: FitClass, gpus: int) -> Choice:
    """Take from one half if it can serve, the tighter one first; else empty the fuller half and take the rest beside."""
    if gpus <= min(fit.low, fit.high):
        return Choice(fit, gpus, 0) if fit.low <= fit.high else Choice(fit, 0, gpus)
    if gpus <= fit.low:
        return Choice(fit, gpus, 0)
    if gpus <= fit.high:
        return Choice(fit, 0, gpus)
    if fit.low >= fit.high:
        return Choice(fit, fit.low, gpus - fit.low)
    return Choice(fit, gpus - fit.high, fit.high)


def _rank(choice: Choice) -> tuple[bool, int, int, int]:
    """Within one half before across two; then the least left in that half; then the least left on the node."""
    left_in_half = 0 if choice.spans else (choice.fit.low - choice.low if choice.low else choice.fit.high - choice.high)
    return (choice.spans, left_in_half, choice.fit.free - choice.low - choice.high, choice.fit.number)
