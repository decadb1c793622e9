"""Clients that see what a connection does: each byte of an answer, an end, or a reset."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

SOURCE_BYTES: Final = 65_536
ANSWER_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    head: str
    body: bytes

    @property
    def ends_connection(self) -> bool:
        """Whether it says that the connection ends."""
        return "\r\nconnection: close" in self.head.lower()


class Unanswered(Exception):
    """The connection ended before an answer was whole; the text says how much had come."""


def request(method: str, path: str, key: str | None, body: bytes = b"") -> bytes:
    """A request as bytes."""
    fields = [f"{method} /api/v1{path} HTTP/1.1", "host: berth", f"content-length: {len(body)}"]
    if key is not None:
        fields.append(f"authorization: Bearer {key}")
    if body:
        fields.append("content-type: application/json")
    return "\r\n".join([*fields, "", ""]).encode() + body


def split(received: bytes) -> Answer | None:
    """The answer in what was received; None while it is not whole."""
    head, found, body = received.partition(b"\r\n\r\n")
    if not found:
        return None
    text = head.decode()
    length = next(int(line.split(":")[1]) for line in text.splitlines() if line.lower().startswith("content-length:"))
    return Answer(int(text.split(" ", 2)[1]), text, body[:length]) if len(body) >= length else None


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes) -> Answer:
    """Send a request and return its answer. Raises `Unanswered`, and `ConnectionError` for a reset."""
    writer.write(message)
    await writer.drain()
    received = b""
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        while (answer := split(received)) is None:
            piece = await reader.read(SOURCE_BYTES)
            if not piece:
                raise Unanswered(repr(received))
            received += piece
    return answer


async def ask_anew(port: int, message: bytes) -> Answer | None:
    """The answer over a new connection; None if the listener refuses it. Raises as `exchange`."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return None
    try:
        return await exchange(reader, writer, message)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """A connection that waits in blocking calls."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX) as connection:
        yield connection


def read_answer(connection: socket.socket) -> Answer | None:
    """The next answer; None if the connection ends before its first byte. Raises `Unanswered`, and `ConnectionError`."""
    received = b""
    while (answer := split(received)) is None:
        piece = connection.recv(SOURCE_BYTES)
        if not piece:
            if received:
                raise Unanswered(repr(received))
            return None
        received += piece
    return answer


def accepts(port: int) -> bool:
    """Whether the listener accepts a connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.5):
            return True
    except OSError:
        return False
