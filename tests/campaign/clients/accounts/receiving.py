"""The receiver of the campaign's webhooks: a server on loopback that fails by the seed, and is down at times."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from tests.campaign.accounts import HookMessage
from tests.campaign.history import History
from tests.support.waiting import pause

TIMEOUT_SECONDS = 2
"""The sender's timeout of an attempt (BERTH_WEBHOOK_TIMEOUT_SECONDS)."""
LATE_SECONDS = TIMEOUT_SECONDS + 1.0
BEHAVIOURS = {
    "accept": 70, "refuse": 8, "ask_for_later": 4, "answer_late": 3, "close": 6, "close_midway": 3, "redirect": 4, "gone": 1,
}  # fmt: skip
"""What the receiver does with a request, and how often in a hundred."""
UP_SECONDS = (4.0, 15.0)
DOWN_SECONDS = (0.5, 3.0)
REDIRECTED = "/redirected"
UNRECORDED = "/unrecorded"
"""Webhooks under this path only fill a quota; what they receive is not judged."""
HEADS: dict[str, tuple[int, str]] = {
    "accept": (204, ""),
    "answer_late": (204, ""),
    "refuse": (500, ""),
    "ask_for_later": (503, "retry-after: 1\r\n"),
    "redirect": (302, f"location: {REDIRECTED}\r\n"),
    "gone": (410, ""),
}
HEAD_SECONDS_MAX = 30.0


Behave = Callable[[str, int], str]
"""What to do with the n-th request of a webhook, counted from 0."""


class HookReceiver:
    """Receives webhooks; the n-th request of each is answered as the seed or `behave` decides."""

    def __init__(self, history: History, behave: Behave | None = None) -> None:
        self._history = history
        self._behave = behave or self._by_seed
        self._chance = random.Random(f"receiving:{history.seed}")
        self._requests: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._port = 0
        self._is_calm = False

    async def __aenter__(self) -> HookReceiver:
        """Listen on a free port of loopback."""
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the listener and every connection."""
        self._close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def url(self, path: str) -> str:
        """The URL of a webhook; `path` begins with a slash."""
        return f"http://127.0.0.1:{self._port}{path}"

    def give_up_at(self, at: float) -> None:
        """It sends nothing, so this changes nothing."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Close the listener at times until stopped; from then on accept every request."""
        while not stopping.is_set():
            await pause(self._chance.uniform(*UP_SECONDS), stopping)
            if stopping.is_set():
                break
            self._close()
            await pause(self._chance.uniform(*DOWN_SECONDS), stopping)
            await self._listen()
        self._is_calm = True

    async def _listen(self) -> None:
        listener = socket.create_server(("127.0.0.1", self._port), backlog=100)
        self._port = listener.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=listener)

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a server calls this in a task"
        self._open.add(task)
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(HEAD_SECONDS_MAX):
                    message = await _read(reader)
                await self._answer(message, writer)
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, message: HookMessage, writer: asyncio.StreamWriter) -> None:
        path = message.hook
        if not path.startswith(UNRECORDED):
            self._history.accounts.messages.append(message)
        behaviour = "accept" if self._is_calm or path.startswith(UNRECORDED) else self._behaviour(path)
        if behaviour == "close":
            return
        if behaviour == "close_midway":
            writer.write(b"HTTP/1.1 20")
            await writer.drain()
            return
        if behaviour == "answer_late":
            await pause(LATE_SECONDS)
        status, fields = HEADS[behaviour]
        # Noted first: the sender may act on the response before this task runs again.
        message.answered = status
        writer.write(f"HTTP/1.1 {status} -\r\ncontent-length: 0\r\n{fields}\r\n".encode())
        await writer.drain()

    def _behaviour(self, path: str) -> str:
        number = self._requests[path]
        self._requests[path] += 1
        return self._behave(path, number)

    def _by_seed(self, path: str, number: int) -> str:
        chance = random.Random(f"receiving:{self._history.seed}:{path}:{number}")
        return chance.choices(list(BEHAVIOURS), list(BEHAVIOURS.values()))[0]


async def _read(reader: asyncio.StreamReader) -> HookMessage:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = head.rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return HookMessage(line.split(" ")[1], time.monotonic(), headers, body)
