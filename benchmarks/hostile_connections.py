"""Many hostile connections to a listener that speaks TLS, of every kind, from one address: opened again when they are ended.

Runs as a separate process (`python -m benchmarks.hostile_connections PORT COUNT ADDRESS`). Prints a line once every
connection was opened, and runs until it is terminated.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import uvloop

HERE = "127.0.0.1"
AGAIN_SECONDS = 2.0
"""Between the end of a connection and the next one in its place."""
PACE_SECONDS = 1.0
"""Between the bytes of a slow client."""
READY = "attacking"
OPEN_WRITE = b"POST /api/v1/nodes/enroll HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n"
Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _drip(writer: asyncio.StreamWriter, first: bytes) -> None:
    writer.write(first)
    while not writer.is_closing():
        await asyncio.sleep(PACE_SECONDS)
        writer.write(b"1")
        await writer.drain()


async def slow_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A byte of the head each second."""
    await _drip(writer, b"GET /api/v1/regions HTTP/1.1\r\nhost: here\r\nx-slow: ")


async def slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A byte of the body each second, of a write that needs no key."""
    await _drip(writer, OPEN_WRITE + b"content-length: 100000\r\n\r\n")


async def huge_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A field without an end."""
    writer.write(b"GET / HTTP/1.1\r\nhost: here\r\nx-huge: ")
    while not writer.is_closing():
        writer.write(b"x" * 65_536)
        await writer.drain()


async def trailer_flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Trailer fields without an end."""
    writer.write(OPEN_WRITE + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
    while not writer.is_closing():
        writer.write(b"x-trailer: 1\r\n" * 1_000)
        await writer.drain()


async def random_keys(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Releases with random keys, as fast as they are answered."""
    while not writer.is_closing():
        target = f"POST /api/v1/allocations/{uuid.uuid4()}/release HTTP/1.1\r\nhost: here\r\n"
        writer.write(f"{target}authorization: Bearer berth_{uuid.uuid4().hex}\r\ncontent-length: 0\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
        await reader.readexactly(int(length))


async def half_handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The beginning of a TLS record."""
    writer.write(b"\x16\x03\x01\x02\x00\x01")
    await reader.read()


ATTACKS: tuple[Attack, ...] = (slow_head, slow_body, huge_head, trailer_flood, random_keys, half_handshake)


async def _attack_for_ever(attack: Attack, port: int, address: str, opened: asyncio.Semaphore) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    first = True
    while True:
        with suppress(OSError, EOFError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            tls = None if attack is half_handshake else context
            try:
                reader, writer = await asyncio.open_connection(HERE, port, ssl=tls, local_addr=(address, 0))
            finally:
                if first:
                    opened.release()
                    first = False
            try:
                await attack(reader, writer)
            finally:
                writer.transport.abort()
        await asyncio.sleep(AGAIN_SECONDS)


async def _run(port: int, count: int, address: str) -> None:
    opened = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(_attack_for_ever(ATTACKS[number % len(ATTACKS)], port, address, opened))
        for _ in range(count):
            await opened.acquire()
        print(READY, flush=True)


@contextmanager
def attacked(port: int, count: int, address: str) -> Iterator[None]:
    """The block runs beside so many hostile connections. Raises RuntimeError if they could not be opened."""
    command = [sys.executable, "-m", "benchmarks.hostile_connections", str(port), str(count), address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                raise RuntimeError("the hostile connections could not be opened")
            yield
            if process.poll() is not None:
                raise RuntimeError("the hostile connections ended by themselves")
        finally:
            process.terminate()


if __name__ == "__main__":
    uvloop.run(_run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
