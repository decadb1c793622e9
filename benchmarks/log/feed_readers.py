"""Subscribers of the feed: cheap, because they share the machine with what is measured.

Their own process (`python -m benchmarks.log.feed_readers`, `Plan` as JSON on standard input). It prints `ready` when every stream
has begun, and its `Arrivals` as JSON when each has received the last version. Both clocks are the system's monotonic one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial

import uvloop

RUN_SECONDS_MAX = 180.0


@dataclass(frozen=True)
class Plan:
    """So many streams at one process from behind a version to another."""

    port: int
    api_key: str
    streams: int
    after: int
    last: int


@dataclass
class Arrivals:
    """What came: every piece with the first and last version in it, and its time; `events` of all streams together."""

    events: int = 0
    began: float = 0.0
    ended: float = 0.0
    pieces: list[tuple[int, int, float]] = field(default_factory=list)


class _Stream(asyncio.Protocol):
    """One subscriber. It requires each event's chain to be there, and the versions to go up to the last."""

    def __init__(self, plan: Plan, arrivals: Arrivals, begun: asyncio.Future[None], done: asyncio.Future[None]) -> None:
        self._plan, self._arrivals, self._begun, self._done = plan, arrivals, begun, done
        self._rest = b""
        self._told = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        request = (
            f"GET /v1/subscribe?after={self._plan.after} HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {self._plan.api_key}\r\n\r\n"
        )
        transport.write(request.encode())  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Note which versions came, by whole events."""
        now = time.monotonic()
        buffer = self._rest + data
        if not self._begun.done():
            if b"\r\n\r\n" not in buffer:
                self._rest = buffer
                return
            if not buffer.startswith(b"HTTP/1.1 200"):
                self._begun.set_exception(RuntimeError(buffer[:300].decode()))
                return
            self._begun.set_result(None)
            buffer = buffer[buffer.index(b"\r\n\r\n") + 2 :]
        end = buffer.rfind(b"\n\n") + 1
        self._rest = buffer[end:]
        first = buffer.find(b"id: ", 0, end)
        if first < 0:
            return
        last = buffer.rfind(b"id: ", 0, end)
        versions = (
            int(buffer[first + 4 : buffer.index(b"\n", first)]),
            int(buffer[last + 4 : buffer.index(b"\n", last)]),
        )
        self._told += buffer.count(b'"prev_version":', 0, end)
        self._arrivals.pieces.append((*versions, now))
        if versions[1] >= self._plan.last and not self._done.done():
            expected = self._plan.last - self._plan.after
            if self._told == expected:
                self._arrivals.events += self._told
                self._done.set_result(None)
            else:
                self._done.set_exception(RuntimeError(f"{self._told} events came, not {expected}"))

    def connection_lost(self, error: Exception | None) -> None:
        """No stream ends by itself."""
        del error
        for future in (self._begun, self._done):
            if not future.done():
                future.set_exception(ConnectionError(f"the server ended a stream: {self._rest[-300:]!r}"))


def _version(buffer: bytes, at: int) -> int:
    return int(buffer[at + 5 : buffer.index(b"\n", at + 1)])


async def _read(plan: Plan) -> Arrivals:
    loop, arrivals = asyncio.get_running_loop(), Arrivals()
    begun = [loop.create_future() for _ in range(plan.streams)]
    done = [loop.create_future() for _ in range(plan.streams)]
    arrivals.began = time.monotonic()
    async with asyncio.timeout(RUN_SECONDS_MAX):
        for ends in zip(begun, done, strict=True):
            await loop.create_connection(partial(_Stream, plan, arrivals, *ends), "127.0.0.1", plan.port)
        await asyncio.gather(*begun)
        print("ready", flush=True)
        await asyncio.gather(*done)
    arrivals.ended = time.monotonic()
    return arrivals


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(_read(Plan(**json.load(sys.stdin)))))))
