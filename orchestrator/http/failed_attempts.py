"""Slows down addresses that send wrong credentials: a token bucket of failures for each, in a bounded table.

A blocked address gets 429 at once, because a delayed answer would hold its connection. What has been a good credential in this
process before is not blocked, so one caller's failures do not stop another that is at work behind the same address. The
connection ends with the refusal: another one costs a flooding address its turn of a handshake.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

from berth.process.limits.source_addresses import source_key
from orchestrator.problems import TooManyFailures

SOURCES_MAX: Final = 10_000
GOOD_MAX: Final = 10_000
"""Credentials that are remembered as good, the last used ones."""


@dataclass(slots=True)
class _Lookups:
    """How many credentials of a source are looked up now, and what waits for one of them to end."""

    count: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class FailedAttempts:
    """Failures by source. `most` at once and `per_second` in the long run; `most` 0: no bound."""

    def __init__(self, most: int, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._lookups: dict[str, _Lookups] = {}

    @property
    def waiting(self) -> int:
        """How many sources have lookups now."""
        return len(self._lookups)

    async def begin(self, source: str | None, digest: bytes) -> bool:
        """Return when the credential with this SHA-256 may be looked up. True: `end` has to follow, with the source.

        No more are looked up at once than may be wrong; the others wait, and are refused when the others were wrong.
        Raises `TooManyFailures`.
        """
        if source is None or self._most == 0:
            return False
        key = source_key(source)
        waited = False
        while digest not in self._good:
            left = self._left(key)
            if left < 1.0:
                self._wake(key, waited)
                raise TooManyFailures(
                    f"more than {self._most} wrong credentials came from {source}; send a live key, or retry later"
                )
            lookups = self._lookups.setdefault(key, _Lookups())
            if lookups.count < int(left):
                lookups.count += 1
                return True
            waited = True
            await self._wait(key, lookups)
        self._wake(key, waited)
        return False

    async def _wait(self, key: str, lookups: _Lookups) -> None:
        """Return when a lookup has ended."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lookups.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._wake(key, turn.done() and not turn.cancelled())
            raise

    def _wake(self, key: str, passes_on: bool = True) -> None:
        """Let the one that has waited longest look again; forget an address without lookups."""
        lookups = self._lookups.get(key)
        if lookups is None:
            return
        while passes_on and lookups.waiting:
            turn = lookups.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        if not lookups.count and not lookups.waiting:
            del self._lookups[key]

    def end(self, source: str, *, is_wrong: bool) -> None:
        """A lookup has ended. The source that failed longest ago makes room in a full table."""
        key = source_key(source)
        self._lookups[key].count -= 1
        if is_wrong:
            self._failures[key] = (time.monotonic(), max(0.0, self._left(key) - 1.0))
            self._failures.move_to_end(key)
            while len(self._failures) > SOURCES_MAX:
                self._failures.popitem(last=False)
        self._wake(key)

    def note_success(self, digest: bytes) -> None:
        """Remember a good credential."""
        self._good[digest] = None
        self._good.move_to_end(digest)
        while len(self._good) > GOOD_MAX:
            self._good.popitem(last=False)

    def _left(self, key: str) -> float:
        """How many failures the source has left."""
        found = self._failures.get(key)
        if found is None:
            return float(self._most)
        at, left = found
        return min(float(self._most), left + (time.monotonic() - at) * self._per_second)
