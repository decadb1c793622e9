"""What connections are made of, small because there are thousands, and what those of a listener share."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState


class SmallEvent(asyncio.Event):
    """An event for the few tasks of a connection, in a tenth of the memory: its waiters are a list, not a deque.

    Each connection has one that says whether it can be written to, and one for its request's body.
    """

    def __init__(self, *, is_set: bool = False) -> None:
        self._waiters: list[asyncio.Future[bool]] = []  # type: ignore[assignment]
        self._value = is_set


class Pipeline(list[Any]):
    """Requests that wait for the response before theirs, the newest first; a list for its memory, too."""

    def appendleft(self, waiting: Any) -> None:
        """As a deque's; there are at most `PIPELINED_MAX`."""
        self.insert(0, waiting)


class ListenerState(ServerState):
    """What a listener's connections share. `stopping`: its requests are answered, and no connection waits for another one."""

    stopping = False


def hold_body(cycle: weakref.ref[RequestResponseCycle]) -> int:
    """Read nothing more until the request's body is received on, or its response is sent; return the bytes that wait."""
    found = cycle()
    if found is None or found.response_complete:
        return 0
    found.flow.pause_reading()
    return len(found.body)


def collect_body(cycle: Any) -> None:
    """Let a request's body grow without being copied for each piece."""
    if not isinstance(cycle.body, bytearray):
        cycle.body = bytearray(cycle.body)
