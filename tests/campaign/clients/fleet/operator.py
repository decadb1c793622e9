"""What every operator of the fleet does: writes under keys, a fifth of them again, and reads until an answer arrives."""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from berth.client import AsyncClient, BerthError
from tests.campaign.clients.writes import Write
from tests.campaign.clients.writing import Writer
from tests.campaign.history import Attempt, History, Outcome
from tests.support.waiting import pause

REPEATED_SHARE = 0.2
ALTERED_SHARE = 0.3
"""Of the repeated writes, how many have other content."""
KEYS_MAX = 4
SPENT = frozenset({Outcome.FENCED, Outcome.CONFLICT})
"""After one of these the key did nothing of what was wanted."""
AGAIN_SECONDS = 0.5
READ_SECONDS_MAX = 5.0

T = TypeVar("T")


class FleetOperator(ABC):
    """Changes one thing after the other until it is stopped. Its changes of one subject never overlap."""

    def __init__(self, name: str, admins: Sequence[AsyncClient], history: History) -> None:
        self.name = name
        self._admins = admins
        self._history = history
        self._chance = random.Random(f"{name}:{history.seed}")
        self._writer = Writer(name, admins, history, random.Random(f"{name} writes:{history.seed}"))
        self._numbers = iter(range(1_000_000))
        self._repeated: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Return when stopped, with everything as tenants need it and every repetition done."""
        self._stopping = stopping
        while not stopping.is_set():
            await self._change()
            await self.pause(self._chance.uniform(0.1, 1.0))
        await self._finish()
        await asyncio.gather(*self._repeated)

    def give_up_at(self, at: float) -> None:
        """From `at` on no write is repeated any more."""
        self._writer.give_up_at = at

    @property
    def has_time(self) -> bool:
        """Whether writes are still repeated."""
        return time.monotonic() < self._writer.give_up_at

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until stopped."""
        await pause(seconds, self._stopping)

    def key(self) -> str:
        """A new key."""
        return f"{self._history.seed}.{self.name.replace(' ', '-')}.{next(self._numbers)}"

    async def write(self, write: Write, other: Write | None = None) -> Attempt:
        """Write; a fifth of the time the same again, at once or later. `other`: another content to send under the key."""
        if self._chance.random() >= REPEATED_SHARE:
            return await self._writer.write(write)
        repeated = write
        if other is not None and self._chance.random() < ALTERED_SHARE:
            repeated = Write(other.kind, write.key, other.content, other.send, hopeless=other.hopeless)
        if self._chance.random() < 0.5:
            self._later(repeated, 0.0)
            return await self._writer.write(write)
        first = await self._writer.write(write)
        self._later(repeated, self._chance.uniform(0.0, 4.0))
        return first

    async def act(self, make: Callable[[str], Write], other: Write | None = None) -> Attempt:
        """Write under a new key, and under another one where the key was fenced off, or used by the other content."""
        for _ in range(KEYS_MAX):
            told = await self.write(make(self.key()), other)
            if told.outcome not in SPENT:
                break
        return told

    async def done(self, make: Callable[[str], Write], other: Write | None = None) -> bool:
        """Whether it was done in the end."""
        return (await self.act(make, other)).outcome is Outcome.DONE

    def _later(self, write: Write, seconds: float) -> None:
        async def repeat() -> None:
            await self.pause(seconds)
            await self._writer.write(write)

        task = asyncio.create_task(repeat())
        self._repeated.add(task)
        task.add_done_callback(self._repeated.discard)

    async def read(self, what: str, read: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """The answer, however long it takes: servers come back. Raises `BerthError` when the time is up."""
        while True:
            try:
                return await self._read(what, read)
            except (BerthError, TimeoutError):
                if not self.has_time:
                    raise
            await pause(AGAIN_SECONDS)

    async def read_once(self, what: str, read: Callable[[AsyncClient], Awaitable[object]]) -> None:
        """Read, and note how that ended."""
        with suppress(BerthError, TimeoutError):
            await self._read(what, read)

    async def _read(self, what: str, read: Callable[[AsyncClient], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                found = await read(self._chance.choice(self._admins))
        except (BerthError, TimeoutError) as error:
            self._history.count_read(f"{what} {getattr(error, 'code', 'client_timeout')}")
            raise
        self._history.count_read(f"{what} ok")
        return found

    @abstractmethod
    async def _change(self) -> None:
        """One change, or several that belong together."""

    @abstractmethod
    async def _finish(self) -> None:
        """Leave everything as tenants need it."""
