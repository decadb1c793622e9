"""Connections that can be cut: a TCP proxy for each pair of a process and a server, all in one thread.

A cut holds bytes back, as a network that lost its way does, and lets them through when it is mended; neither end is
told. One-way holds back what the server answers. A drop resets every connection at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import uvloop

from berth.local.servers import free_port

CONNECT_SECONDS_MAX = 10.0


class Link:
    """One proxy. All its methods run in the loop of its thread."""

    def __init__(self, name: str, server_port: int) -> None:
        self.name = name
        self.server_port = server_port
        self.port = free_port()
        self.requests_pass = True
        self.answers_pass = True
        self.ends: set[_End] = set()

    def set_passing(self, *, requests: bool, answers: bool) -> None:
        """What goes through from now on; what was held back goes first."""
        self.requests_pass, self.answers_pass = requests, answers
        for end in list(self.ends):
            end.go_on()

    def drop(self) -> None:
        """Reset every connection."""
        for end in list(self.ends):
            end.abort()


class _End(asyncio.Protocol):
    """One side of one connection: what it receives goes to `other`, unless that is held back."""

    def __init__(self, link: Link, other: _End | None = None) -> None:
        self._link = link
        self._is_client = other is None
        self._other = other
        self._transport: asyncio.Transport | None = None
        self._held = bytearray()
        self._ended = False
        self._paused = False
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._link.ends.add(self)
        if self._is_client:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self.go_on()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                _, other = await loop.create_connection(
                    lambda: _End(self._link, self), "127.0.0.1", self._link.server_port
                )
        except OSError:
            self.abort()
            return
        self._other = other
        self.go_on()

    def data_received(self, data: bytes) -> None:
        self._held += data
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._link.ends.discard(self)
        self.go_on()

    def go_on(self) -> None:
        """Pass on what may pass: bytes, then the end."""
        passes = self._link.requests_pass if self._is_client else self._link.answers_pass
        other = self._other
        if other is None or other._transport is None or not passes:
            self._read(not self._held)
            return
        if self._held:
            other._transport.write(bytes(self._held))
            self._held.clear()
        if self._ended:
            other._transport.close()
        self._read(True)

    def _read(self, wanted: bool) -> None:
        """Take more bytes, or leave them to the sender's buffers."""
        if self._transport is None or self._ended or self._paused is not wanted:
            return
        self._paused = not wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def abort(self) -> None:
        """Reset."""
        if self._transport is not None:
            self._transport.abort()


class Links:
    """All links of a stage. Call from any thread."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._links: dict[str, Link] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    @property
    def names(self) -> list[str]:
        """Every link, in the order in which it was made."""
        return list(self._links)

    def make(self, name: str, server_port: int) -> int:
        """Listen for one process's connections to a server; answers the port to use instead of the server's."""
        link = Link(name, server_port)

        async def listen() -> None:
            await self._loop.create_server(lambda: _End(link), "127.0.0.1", link.port)

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)
        self._links[name] = link
        return link.port

    def cut(self, name: str, *, one_way: bool) -> None:
        """Let nothing through any more, or no answers."""
        self._call(lambda: self._links[name].set_passing(requests=one_way, answers=False))

    def drop(self, name: str) -> None:
        """Reset the link's connections."""
        self._call(self._links[name].drop)

    def mend(self, name: str) -> None:
        """Let everything through again."""
        self._call(lambda: self._links[name].set_passing(requests=True, answers=True))

    def close(self) -> None:
        """End the thread and every connection."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _call(self, change: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(5)
