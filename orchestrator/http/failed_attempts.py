"""Slows down addresses that send wrong credentials: a token bucket of failures for each, in a bounded table.

A blocked address gets 429 at once, because a delayed answer would hold its connection. What has been a good credential in this
process before is not blocked, so one caller's failures do not stop another that is at work behind the same address.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

from orchestrator.problems import TooManyFailures

SOURCES_MAX: Final = 10_000
GOOD_MAX: Final = 10_000
"""Credentials that are remembered as good, the last used ones."""
NETWORK_BITS: Final = 64
"""Of an IPv6 address: one caller has all addresses of such a network."""


class FailedAttempts:
    """Failures by source. `most` at once and `per_second` in the long run; `most` 0: no bound."""

    def __init__(self, most: int, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def require_allowed(self, source: str | None, digest: bytes) -> None:
        """Return if the credential with this SHA-256 may be looked up. Raises `TooManyFailures`."""
        if source is None or self._most == 0 or digest in self._good:
            return
        if self._left(_table_key(source)) < 1.0:
            raise TooManyFailures(
                f"more than {self._most} wrong credentials came from {source}; send a live key, or retry later"
            )

    def note_failure(self, source: str | None) -> None:
        """Count a wrong credential. The source that failed longest ago makes room in a full table."""
        if source is None or self._most == 0:
            return
        key = _table_key(source)
        self._failures[key] = (time.monotonic(), max(0.0, self._left(key) - 1.0))
        self._failures.move_to_end(key)
        while len(self._failures) > SOURCES_MAX:
            self._failures.popitem(last=False)

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


def _table_key(source: str) -> str:
    address = ip_address(source)
    return str(IPv6Network((address, NETWORK_BITS), strict=False)) if isinstance(address, IPv6Address) else source
