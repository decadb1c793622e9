"""Many clients that connect at once to a busy process: they are served in few turns of its event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack

from tests.security.listener import Listener, get, listening

CLIENTS = 256


class Turns:
    """The turns of a loop from when it was blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop, free: threading.Event) -> None:
        self.number = 0
        self.blocked = threading.Event()
        self._loop = loop
        self._free = free

    def begin(self) -> None:
        """Block the loop until `free` is set, then count."""
        self.blocked.set()
        self._free.wait()
        self._count()

    def _count(self) -> None:
        self.number += 1
        self._loop.call_soon(self._count)


def test_clients_that_connected_while_the_loop_was_busy_wait_for_few_turns_of_it() -> None:
    """One accepted in a turn would make the last of 500 wait for 500 batches of creates."""
    with listening() as listener, ExitStack() as opened:
        free = threading.Event()
        turns = _blocked(listener, free)
        connections = [opened.enter_context(listener.connect()) for _ in range(CLIENTS)]
        for connection in connections:
            connection.sendall(get("/waits"))
        free.set()
        while listener.waiting < CLIENTS:
            seen = turns.number
            assert seen < CLIENTS // 2 or listener.waiting == CLIENTS, f"{listener.waiting} after {seen} turns"
        listener.release.set()
        for connection in connections:
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200")


def _blocked(listener: Listener, free: threading.Event) -> Turns:
    """Turns of the listener's loop, which is blocked when this returns."""
    loop = listener.loop
    turns = Turns(loop, free)
    loop.call_soon_threadsafe(turns.begin)
    turns.blocked.wait()
    return turns
