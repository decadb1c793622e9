"""How many values a JSON body may have: parsing and validating cost by the value, not by the byte."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.problems import TooLarge

VALUES_MAX: Final = 10_000
"""Values of a body; more only where the settings allow larger transactions (`values_max_of`)."""
MEMBERS_OF_AN_ITEM_MAX: Final = 5
# Possessive, and content with an unterminated string: one pass over the body, whatever is in it.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BEGINNINGS = (b",", b"[", b"{")
"""Each value of a list or an object follows one of these."""


def values_max_of(items_max: int) -> int:
    """The bound where a transaction may have this many items."""
    return max(VALUES_MAX, MEMBERS_OF_AN_ITEM_MAX * items_max)


class BodyValues:
    """Counts the values of one body, piece by piece."""

    def __init__(self, values_max: int) -> None:
        self._values_max = values_max
        self._pieces: list[bytes] = []
        self._most = 0

    def add(self, piece: bytes, *, last: bool) -> None:
        """Count a piece. Raises `TooLarge` at the last one if the body has more values than allowed."""
        self._most += _count(piece)
        self._pieces.append(piece)
        if last and self._most > self._values_max:
            # At most a name and a text for each value: more strings are not even scanned.
            text, strings = _STRINGS.subn(b"", b"".join(self._pieces), count=2 * self._values_max + 1)
            if strings > 2 * self._values_max or _count(text) > self._values_max:
                raise TooLarge(f"the body may have at most {self._values_max} values; split the request")


def _count(text: bytes) -> int:
    return sum(text.count(beginning) for beginning in _BEGINNINGS)
