"""How many connections a listener has, in total and per source address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from berth.process.limits.source_addresses import canonical, source_key

Source = tuple[str, int]
"""Address and port of a client."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A counted connection. `client`: where it comes from; `uncount` ends the counting; `slow_down`: its address is flooding."""

    client: Source
    uncount: Callable[[], None]
    slow_down: Callable[[], None] = lambda: None


class ConnectionCounts:
    """A bounded table: it holds an entry for each source with an open connection, and no others.

    `per_source_max` None: connections come through proxies, so their source says nothing about the caller. `is_shared`: whether
    an address is that of such a proxy.
    """

    def __init__(
        self, total_max: int, per_source_max: int | None, is_shared: Callable[[str], bool] = lambda source: False
    ) -> None:
        self._total_max = total_max
        self._is_shared = is_shared
        self._per_source_max = per_source_max
        self._by_source: Counter[str] = Counter()
        self._total = 0

    def add(self, source: str, *, per_source: bool = True) -> Callable[[], None] | None:
        """Count a connection; return what ends the counting, or None if a bound is reached.

        `per_source` False: against the total alone.
        """
        if self._total >= self._total_max:
            return None
        bounded = per_source and self._per_source_max is not None and not self._is_shared(canonical(source) or source)
        key = source_key(source)
        if bounded and self._by_source[key] >= (self._per_source_max or 0):
            return None
        self._total += 1
        self._by_source[key] += 1

        return partial(self._uncount, key)

    def _uncount(self, key: str) -> None:
        self._total -= 1
        self._by_source[key] -= 1
        if self._by_source[key] <= 0:
            del self._by_source[key]
