"""Refuses a PostgreSQL server whose clock has stepped, as another primary's may have: its clock evaluates every deadline (P5).

Each process remembers how far the server's clock was from its own monotonic clock. Time synchronization slews both alike, so
what changes suddenly between two connections is a step of the server's clock. A process that remembers nothing compares with its
wall clock.

A clock that stepped forward would end holds early: the server is refused until its clock is repaired, unless the wall clock of
this process agrees with it (it was repaired). A primary that is behind the one before would date what it does before what was
done: it is refused until it has passed that time; a connection waits for less than `STEP_SECONDS_MAX`.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import structlog

STEP_SECONDS_MAX = 1.0
"""Synchronized clocks of two machines differ by milliseconds."""
PRECISE_SECONDS = 0.1
"""A reading that took longer replaces only one that took longer still."""

_log = structlog.get_logger()


class ClockRefused(psycopg.OperationalError):
    """The clock of the server cannot be right. `seconds` is how far it is ahead of what it should show; negative behind."""

    def __init__(self, seconds: float) -> None:
        where = "ahead of" if seconds > 0 else "behind"
        super().__init__(
            f"the server's clock is {abs(seconds):.1f} s {where} what this process expects; repair the clock that is wrong"
        )
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The server's clock, read between two moments of this process's monotonic clock; all in seconds."""

    server: float
    asked: float
    answered: float

    @property
    def width(self) -> float:
        """How precise it is."""
        return self.answered - self.asked

    def ahead_at_most(self) -> float:
        """How far the server's clock is ahead of the monotonic clock, at most."""
        return self.server - self.asked

    def ahead_at_least(self) -> float:
        """How far the server's clock is ahead of the monotonic clock, at least."""
        return self.server - self.answered


@dataclass(frozen=True, slots=True)
class Remembered:
    """Of the primaries of one database system: the newest timeline, what its clock must pass, and the last precise reading.

    The reading is of an earlier timeline (`read_on`) while the newest server is refused.
    """

    timeline: int
    passed: float
    read_on: int
    reading: ClockReading


@dataclass(frozen=True, slots=True)
class Judgement:
    """What follows from a reading. The server is refused if it is `ahead`, or `behind` by more than `STEP_SECONDS_MAX`."""

    remembered: Remembered | None
    ahead: float = 0.0
    behind: float = 0.0


def judge_clock(before: Remembered | None, timeline: int, reading: ClockReading, wall_ahead: float) -> Judgement:
    """Compare a primary's clock with what is remembered, or with the wall clock: `wall_ahead` of the monotonic one.

    A refused server's reading is not remembered; that its timeline exists is, so that what it must pass does not move on.
    """
    expected = before.reading if before else ClockReading(wall_ahead, 0.0, 0.0)
    stepped = reading.ahead_at_least() - expected.ahead_at_most()
    if stepped > STEP_SECONDS_MAX and reading.ahead_at_least() - wall_ahead > STEP_SECONDS_MAX:
        return Judgement(before, ahead=stepped)
    if before is not None and timeline == before.timeline:
        passed = before.passed
    else:
        passed = reading.asked + expected.ahead_at_most()
    # A server that was used and set its clock back goes on: its open transactions do as well.
    same = before is not None and timeline == before.read_on
    behind = 0.0 if same else max(0.0, passed - reading.server)
    if behind > STEP_SECONDS_MAX:
        return Judgement(before and replace(before, timeline=timeline, passed=passed), behind=behind)
    vague = same and reading.width > max(PRECISE_SECONDS, expected.width)
    return Judgement(Remembered(timeline, passed, timeline, expected if vague else reading), behind=behind)


_remembered: dict[int, Remembered] = {}
"""By system identifier."""


def steady_seconds() -> float:
    """A clock of this process that never steps and goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def require_right_clock(
    connection: psycopg.AsyncConnection[Any], system: int, timeline: int, reading: ClockReading
) -> None:
    """Return when the primary's clock is past every time that an earlier primary of the system may have written.

    Raises `ClockRefused` if that takes longer than `STEP_SECONDS_MAX`, or if its clock has stepped forward.
    """
    found = judge_clock(_remembered.get(system), timeline, reading, time.time() - steady_seconds())
    if found.remembered is not None:
        _remembered[system] = found.remembered
    if found.ahead or found.behind > STEP_SECONDS_MAX:
        ahead = found.ahead or -found.behind
        info = connection.info
        _log.warning("database_clock_refused", host=info.host, port=info.port, ahead_seconds=round(ahead, 3))
        raise ClockRefused(ahead)
    if found.behind:
        await asyncio.sleep(found.behind)
