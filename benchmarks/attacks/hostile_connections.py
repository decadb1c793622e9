"""Hostile clients of the public listener: `python -m benchmarks.attacks.hostile_connections`.

Reads its `Plan` as one line of JSON, and prints `ready` when each connection has been opened once. Each connection repeats one
attack, over TLS, and is opened again when the server ends it. Ends with its standard input or after `seconds_max`, and prints
how many connections there were of each kind, and which status lines were received, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import uvloop

from benchmarks.attacks.attacking import last_until_input_ends
from benchmarks.attacks.loopback import raise_files_max

HALF_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The begin of a TLS ClientHello of 512 bytes."""
DRIP_SECONDS: Final = 1.0
"""Between two bytes of a slow client."""
HUGE_BYTES: Final = 64 * 1024
"""What a client sends that the listener refuses at 16 KiB."""
RECONNECT_SECONDS: Final = 0.05
"""Between the end of a connection and the next one."""
PIPELINED: Final = 8
"""Requests that a listener accepts before it has responded to the first."""
UNREAD_SECONDS: Final = 25.0
"""Longer than a listener waits for a client that reads nothing."""
READ_BYTES: Final = 65_536
FILES_MAX: Final = 16_384


@dataclass(frozen=True)
class Plan:
    """So many connections, spread evenly over the kinds of attack and the source addresses."""

    port: int
    connections: int
    sources: list[str]
    key: str
    """The API key of a hostile tenant, for bodies that are read."""
    seconds_max: float
    attacks: list[str] = field(default_factory=lambda: list(ATTACKS))
    """Which kinds, by name."""


@dataclass
class Report:
    """What became of the connections. `refused`: connections that the server ended before it was spoken to."""

    opened: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)


class _Connection:
    """One connection that is opened again and again."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str, report: Report) -> None:
        self.reader = reader
        self.writer = writer
        self.key = key
        self.report = report

    async def send(self, data: bytes) -> None:
        """Send, as fast as the server reads."""
        self.writer.write(data)
        await self.writer.drain()

    async def drip(self, byte: bytes) -> None:
        """Send one byte now and then, until the server ends the connection."""
        ended = asyncio.ensure_future(self.read_until_closed())
        try:
            while not (await asyncio.wait([ended], timeout=DRIP_SECONDS))[0]:
                await self.send(byte)
        finally:
            ended.cancel()

    async def read_until_closed(self) -> None:
        """Read everything; count the status line."""
        first = True
        while chunk := await self.reader.read(READ_BYTES):
            if first and chunk.startswith(b"HTTP/1.1 "):
                self.report.statuses[chunk[9:12].decode()] += 1
            first = False


async def slow_head(connection: _Connection) -> None:
    """A head that never ends."""
    await connection.send(b"GET /api/v1/skus HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
    await connection.drip(b"x")


async def slow_body(connection: _Connection) -> None:
    """A tenant's body that never ends."""
    await connection.send(_post("/api/v1/allocations", connection.key, "content-length: 200000") + b"{")
    await connection.drip(b" ")


async def huge_head(connection: _Connection) -> None:
    """A head of four times the bound."""
    await connection.send(b"GET / HTTP/1.1\r\nhost: localhost\r\nx-huge: ")
    await connection.send(b"x" * HUGE_BYTES)
    await connection.read_until_closed()


async def trailer_flood(connection: _Connection) -> None:
    """A body with endless trailer fields."""
    await connection.send(_post("/api/v1/allocations", connection.key, "transfer-encoding: chunked"))
    await connection.send(b"2\r\n{}\r\n0\r\n" + b"x-trailer: x\r\n" * (HUGE_BYTES // 14))
    await connection.read_until_closed()


async def random_keys(connection: _Connection) -> None:
    """Requests with keys that do not exist, one after another, to a read and to what is never shed."""
    while True:
        key = f"berth_{secrets.token_hex(4)}_{secrets.token_urlsafe(32)}"
        release = f"/api/v1/allocations/{uuid.uuid4()}/release"
        for request in (
            f"GET /api/v1/allocations HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n".encode(),
            _post(release, key, "content-length: 0"),
        ):
            await connection.send(request)
            head = await connection.reader.readuntil(b"\r\n\r\n")
            connection.report.statuses[head[9:12].decode()] += 1
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            await connection.reader.readexactly(length)


async def unread_documents(connection: _Connection) -> None:
    """Pipelined requests for the largest document, without a key, whose responses are not read."""
    await connection.send(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * PIPELINED)
    connection.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(UNREAD_SECONDS)


async def half_open_tls(connection: _Connection) -> None:
    """Half of the first message of a handshake."""
    await connection.send(HALF_HELLO)
    await connection.read_until_closed()


def _post(path: str, key: str, length: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\n{length}\r\n\r\n"
    ).encode()


ATTACKS: Final[dict[str, Callable[[_Connection], Awaitable[None]]]] = {
    attack.__name__: attack
    for attack in (
        slow_head,
        slow_body,
        huge_head,
        trailer_flood,
        half_open_tls,
        random_keys,
        unread_documents,
    )
}


async def _repeat(plan: Plan, number: int, context: ssl.SSLContext, report: Report, opened: asyncio.Event) -> None:
    name = plan.attacks[number % len(plan.attacks)]
    attack = ATTACKS[name]
    source = plan.sources[number // len(plan.attacks) % len(plan.sources)]
    tls = None if attack is half_open_tls else context
    while True:
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", plan.port, ssl=tls, local_addr=(source, 0), server_hostname="localhost" if tls else None
            )
            report.opened[name] += 1
            opened.set()
            await attack(_Connection(reader, writer, plan.key, report))
        except (OSError, asyncio.IncompleteReadError):
            report.refused[name] += writer is None
        finally:
            if writer is not None:
                writer.transport.abort()
        await asyncio.sleep(RECONNECT_SECONDS)


async def _attack(plan: Plan) -> Report:
    report = Report()
    asyncio.get_running_loop().set_exception_handler(lambda loop, _: None)  # connections end in every way
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # an attacker does not mind which server it is
    opened = [asyncio.Event() for _ in range(plan.connections)]
    running = [
        asyncio.create_task(_repeat(plan, number, context, report, event)) for number, event in enumerate(opened)
    ]
    await last_until_input_ends(running, opened, plan.seconds_max)
    return report


def main() -> None:
    """Read the plan, attack, print the report."""
    raise_files_max(FILES_MAX)
    plan = Plan(**json.loads(sys.stdin.readline()))
    report = uvloop.run(_attack(plan))
    print(json.dumps({"opened": report.opened, "refused": report.refused, "statuses": report.statuses}), flush=True)


if __name__ == "__main__":
    main()
