"""When a TLS handshake begins: its first message is there whole, and it is the turn of its source address.

A handshake costs as much CPU time as several requests. One handshake begins in each turn of the event loop, round robin over
source addresses, so that requests go on beside any number of them, and the connections of one address delay no other's. An
address that floods has few of them for a while: its other connections end at their deadline, without a handshake.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict
from typing import Final

from berth.process.fair_queue import FairQueue
from berth.process.limits.source_addresses import source_key

RECORD_HEADER_BYTES: Final = 5
HANDSHAKE_RECORD: Final = 22
"""First byte of a TLS record that holds a handshake message (RFC 8446 §5.1)."""
RECORD_BYTES_MAX: Final = 16_384 + 256
FIRST_PAUSE_SECONDS: Final = 0.01
"""Before half a message is examined again; then twice as long each time."""

SLOW_SECONDS: Final = 10.0
"""How long an address that floods is slowed down, from its last refusal on."""
SLOW_GAP_SECONDS: Final = 0.1
"""Between two handshakes of such an address."""
SLOW_SOURCES_MAX: Final = 10_000
IDLE_SECONDS: Final = 0.01
"""Between two looks while only addresses wait that are slowed down."""


class NoHello(OSError):
    """The connection does not begin with a TLS record of a handshake, or ended."""


async def wait_for_hello(connection: socket.socket) -> None:
    """Return when the first TLS record has arrived whole; it stays unread. Raises `NoHello`."""
    pause = FIRST_PAUSE_SECONDS
    await wait_readable(connection)
    while not _is_whole(connection.recv(RECORD_BYTES_MAX + RECORD_HEADER_BYTES, socket.MSG_PEEK)):
        await asyncio.sleep(pause)
        pause *= 2


def _is_whole(received: bytes) -> bool:
    if not received or received[0] != HANDSHAKE_RECORD:
        raise NoHello("the connection does not begin with a TLS handshake")
    if len(received) < RECORD_HEADER_BYTES:
        return False
    length = int.from_bytes(received[3:RECORD_HEADER_BYTES], "big")
    if length > RECORD_BYTES_MAX:
        raise NoHello("the first TLS record is longer than a record may be")
    return len(received) >= RECORD_HEADER_BYTES + length


async def wait_readable(connection: socket.socket) -> None:
    """Return when the socket has something to read or to accept, or has ended."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, _settle, readable)
    try:
        await readable
    finally:
        loop.remove_reader(connection)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class HandshakeTurns:
    """Turns of the event loop for handshakes. Bounded by the connections that wait, which their listener counts."""

    def __init__(self) -> None:
        self._waiting: FairQueue[tuple[str, asyncio.Future[None]], str] = FairQueue(lambda item: item[0], self._judge)
        self._slow: OrderedDict[str, tuple[float, float]] = OrderedDict()  # slow until, next turn at
        self._giving: asyncio.Task[None] | None = None

    async def wait(self, source: str) -> None:
        """Return when a handshake of a connection from this address may begin."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((source_key(source), turn))
        if self._giving is None:
            self._giving = asyncio.create_task(self._give())
        await turn

    async def _give(self) -> None:
        """Give one turn in each turn of the event loop, until none waits."""
        while len(self._waiting):
            taken = self._waiting.take(1)
            for item in taken:
                self._waiting.done(item)
                _settle(item[1])
            await asyncio.sleep(0 if taken else IDLE_SECONDS)
        self._giving = None

    def slow_down(self, source: str) -> None:
        """Give this address few turns for a while. The one slowed down longest ago makes room in a full table."""
        now, key = time.monotonic(), source_key(source)
        self._slow[key] = (now + SLOW_SECONDS, self._slow.pop(key, (0.0, now + SLOW_GAP_SECONDS))[1])
        while len(self._slow) > SLOW_SOURCES_MAX:
            self._slow.popitem(last=False)

    def is_slow(self, source: str) -> bool:
        """Whether this address is slowed down."""
        key = source_key(source)
        return key in self._slow and time.monotonic() < self._slow[key][0]

    def _judge(self, item: tuple[str, asyncio.Future[None]]) -> bool | None:
        """Whether it is the turn of an item: True, not yet, or None if nothing waits for it any more."""
        source, turn = item
        if turn.done():
            return None
        slow = self._slow.get(source)
        if slow is None:
            return True
        now = time.monotonic()
        until, next_at = slow
        if now >= until:
            del self._slow[source]
        elif now < next_at:
            return False
        else:
            self._slow[source] = (until, now + SLOW_GAP_SECONDS)
        return True

    def close(self) -> None:
        """Give no more turns."""
        if self._giving is not None:
            self._giving.cancel()
