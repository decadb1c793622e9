"""How many connections a listener has, in total and per source address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


class ConnectionCounts:
    """A bounded table: it holds an entry for each source with an open connection, and no others.

    `per_source_max` None: connections come through proxies, so their source says nothing about the caller.
    """

    def __init__(self, total_max: int, per_source_max: int | None) -> None:
        self._total_max = total_max
        self._per_source_max = per_source_max
        self._by_source: Counter[str] = Counter()
        self._total = 0

    def add(self, source: str) -> Callable[[], None] | None:
        """Count a connection; return what ends the counting, or None if a bound is reached."""
        if self._total >= self._total_max:
            return None
        if self._per_source_max is not None and self._by_source[source] >= self._per_source_max:
            return None
        self._total += 1
        self._by_source[source] += 1

        def uncount() -> None:
            self._total -= 1
            self._by_source[source] -= 1
            if self._by_source[source] <= 0:
                del self._by_source[source]

        return uncount
