"""Byte ranges of a request (RFC 9110 §14): one range is served, and what asks for several gets the whole."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_ONE: Final = re.compile(r"^\s*bytes\s*=\s*([0-9]{0,19})-([0-9]{0,19})\s*$", re.IGNORECASE)


class Unsatisfiable(Exception):
    """The range begins behind the end."""


@dataclass(frozen=True)
class Span:
    """The bytes from `start` up to `end`, which is not among them."""

    start: int
    end: int


def asked_span(header: str | None, size_bytes: int) -> Span | None:
    """The bytes of a Range header; None for the whole: no header, several ranges, another unit, or none that can be read.

    Raises Unsatisfiable.
    """
    found = _ONE.match(header or "")
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        length = min(int(found[2]), size_bytes)
        if length == 0:
            raise Unsatisfiable
        return Span(size_bytes - length, size_bytes)
    start = int(found[1])
    last = int(found[2]) if found[2] else size_bytes - 1
    if found[2] and last < start:
        return None
    if start >= size_bytes:
        raise Unsatisfiable
    return Span(start, min(last + 1, size_bytes))
