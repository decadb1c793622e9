"""Parses server-sent events (WHATWG HTML, section 9.2.6), as far as Berth's feed uses them.

Not `httpx-sse`: it buffers a line and an event without a bound, and decodes before the data can be parsed as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from berth.client.errors import UnreadableAnswer

FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Larger than any event (a payload is at most 256 KiB); a server that never ends a frame is cut off here."""


class Frame(NamedTuple):
    """One dispatched event: its type, and its data."""

    kind: str
    data: bytes


class FrameReader:
    """Collects bytes, and yields each frame when it is whole."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that end in this chunk. Raises `UnreadableAnswer` for one that is longer than any event."""
        *whole, self._rest = (self._rest + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        for block in whole:
            found = _frame(block)
            if found is not None:
                yield found
        if len(self._rest) > FRAME_BYTES_MAX:
            raise UnreadableAnswer("the feed sends a frame that does not end", code="unreadable_answer")


def _frame(block: bytes) -> Frame | None:
    kind, data = "message", []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"event":
            kind = value.removeprefix(b" ").decode()
        elif name == b"data":
            data.append(value.removeprefix(b" "))
    return Frame(kind, b"\n".join(data)) if data else None
