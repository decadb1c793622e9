"""A TCP proxy in front of Postgres that cuts a session at the statement that commits: before it is forwarded, or after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

COMMITTING = (b"place_allocations", b"COMMIT")


class CuttingProxy:
    """Forwards everything; at the next statement that commits after `arm` it ends the session."""

    def __init__(self, database_url: str) -> None:
        self._parts = urlsplit(database_url)
        self._armed: str | None = None
        self.cuts = 0
        self.url = database_url
        self.wait_committed: Callable[[], Awaitable[None]] = _at_once

    def arm(self, when: str) -> None:
        """Cut at the next commit, `before` or `after` the server sees it."""
        self._armed = when

    @asynccontextmanager
    async def running(self) -> AsyncIterator[CuttingProxy]:
        """Listen on a free port; `url` is its address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.url = self._parts._replace(
            netloc=f"{self._parts.username}:{self._parts.password}@127.0.0.1:{port}"
        ).geturl()
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        back = asyncio.create_task(_pump(upstream_reader, writer))
        try:
            while data := await reader.read(65_536):
                if self._armed is not None and any(word in data for word in COMMITTING):
                    when, self._armed = self._armed, None
                    self.cuts += 1
                    back.cancel()
                    if when == "after":
                        upstream.write(data)
                        await upstream.drain()
                        await self.wait_committed()
                    return
                upstream.write(data)
                await upstream.drain()
        finally:
            back.cancel()
            upstream.close()
            writer.close()


async def _at_once() -> None:
    """The default of `wait_committed`."""


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
