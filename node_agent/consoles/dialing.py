"""The connection of one console session to the API process that its task names."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from node_agent.wire.console import (
    FRAME_BYTES_MAX,
    HELLO,
    WELCOME,
    ConsoleHello,
    ConsoleParameters,
    FrameRefused,
    frame,
    read_frame,
)

KEEP_ALIVE_SECONDS = 10
KEEP_ALIVE_PROBES = 3
CLOSE_SECONDS_MAX = 2.0


class DialFailed(Exception):
    """The process was not reached, refused the session, or did not prove that it opened it."""


class Link:
    """An open connection whose both sides have proven themselves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send a frame; returns when the buffers have room again. Raises ConnectionError."""
        self.writer.write(data)
        await self.writer.drain()


@asynccontextmanager
async def dial(order: ConsoleParameters, tls: ssl.SSLContext, seconds_max: float) -> AsyncIterator[Link]:
    """Connect within `seconds_max`, show the node's certificate, and exchange proofs. Raises `DialFailed`."""
    writer: asyncio.StreamWriter | None = None
    try:
        try:
            async with asyncio.timeout(seconds_max):
                reader, writer = await asyncio.open_connection(
                    order.host, order.port, ssl=tls, server_hostname=order.host, limit=4 * FRAME_BYTES_MAX
                )
                _keep_alive(writer)
                await _prove(order, reader, writer)
        except TimeoutError as error:
            raise DialFailed(f"{order.host}:{order.port} did not answer in time") from error
        except (OSError, FrameRefused) as error:
            raise DialFailed(f"{order.host}:{order.port}: {str(error) or type(error).__name__}") from error
        yield Link(reader, writer)
    finally:
        if writer is not None:
            await _close(writer)


async def _prove(order: ConsoleParameters, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    hello = ConsoleHello(session_id=order.session_id, secret_sha256=order.secret_sha256)
    writer.write(frame(HELLO, hello.model_dump_json().encode()))
    await writer.drain()
    answer = await read_frame(reader)
    if answer is None:
        raise DialFailed("the process refused the session: it has ended, or another connection serves it")
    kind, secret = answer
    if kind != WELCOME or not hmac.compare_digest(hashlib.sha256(secret).hexdigest(), order.secret_sha256):
        raise DialFailed("the process did not prove that it opened this session")


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """A process whose machine is gone ends the session, though nothing is sent."""
    found: socket.socket = writer.get_extra_info("socket")
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_SECONDS)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_SECONDS)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEP_ALIVE_PROBES)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close, and do not wait for a side that reads nothing."""
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await writer.wait_closed()
            return
    writer.transport.abort()
