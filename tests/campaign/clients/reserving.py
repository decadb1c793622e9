"""What every client that reserves does: hold, confirm, cancel, take, look, and ask what became of it."""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from berth.client import BerthError
from tests.campaign.clients import writes
from tests.campaign.clients.load import ACTIVE_SECONDS_MAX, ENDED, LOOK_SECONDS, Renter
from tests.campaign.clients.reading import Reader
from tests.campaign.clients.writes import Write
from tests.campaign.clients.writing import Writer
from tests.campaign.history import Attempt, History, Outcome, Sight
from tests.support.waiting import pause

DUPLICATED_SHARE = 0.2
ASKED_SHARE = 0.08
"""Of how many writes the key is asked for, whatever became of them: before, while and after they are sent."""
OLD_SHARE = 0.1
"""How often an old reservation is looked at again."""


class ReservingClient:
    """One client, with all that it can do."""

    def __init__(self, name: str, tenant: Renter, history: History, *, patient: bool = False) -> None:
        self.name = name
        self._tenant = tenant
        self._history = history
        self._patient = patient
        self._chance = random.Random(f"reserving:{history.seed}:{name}")
        self._numbers = iter(range(1_000_000))
        self._prefix = f"{history.seed}.{name.replace(' ', '')}"
        self._reader = Reader(name, tenant.clients, history, self._chance)
        chance = random.Random(f"reserved:{history.seed}:{name}")
        self._writer = Writer(name, tenant.clients, history, chance, patient=patient)
        self._old: list[UUID] = []
        self._stopping = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until stopped."""
        await pause(seconds, self._stopping)

    async def until(self, moment: datetime, seconds: float = 0.0) -> None:
        """Wait until so long after that moment, or until stopped."""
        await self.pause((moment - datetime.now(UTC)).total_seconds() + seconds)

    def give_up_at(self, at: float) -> None:
        """From `at` on no write is repeated any more."""
        self._writer.give_up_at = at

    async def hold(self, asked: Mapping[str, Any]) -> UUID | None:
        """The reservation, if it was had."""
        if self._old and self._chance.random() < OLD_SHARE:
            await self._reader.reservation(self._chance.choice(self._old))
        held = await self.write(writes.hold(await self._key(), asked))
        if held.outcome is not Outcome.DONE or held.reservation_id is None:
            return None
        self._old.append(held.reservation_id)
        return held.reservation_id

    async def confirm(self, reservation_id: UUID) -> bool:
        """Whether it is confirmed."""
        told = await self.write(writes.confirm(await self._key(), reservation_id, self.name))
        return told.outcome is Outcome.DONE

    async def cancel(self, reservation_id: UUID) -> None:
        """Give it back."""
        await self.write(writes.cancel(await self._key(), reservation_id, self.name))

    async def take(self, reservation_id: UUID, sku: str | None = None) -> Attempt:
        """Turn one of its claims into an allocation."""
        asked = {"holder_id": self.name, **({"sku": sku} if sku else {})}
        return await self.write(writes.take(await self._key(), reservation_id, asked, self._tenant.keys))

    async def release(self, allocation_id: UUID) -> None:
        """Give it back."""
        await self.write(writes.release(await self._key(), allocation_id))

    async def look(self, reservation_id: UUID) -> None:
        """Read it through any API process."""
        await self._reader.reservation(reservation_id)

    async def wait_active(self, allocation_id: UUID) -> Sight | None:
        """The read that shows it active or ended; None if neither arrived in time, or when stopped."""
        until = time.monotonic() + ACTIVE_SECONDS_MAX
        while time.monotonic() < until and not self._stopping.is_set():
            sight = await self._reader.allocation(allocation_id)
            if sight is not None and (sight.state in ("active", "releasing") or sight.state in ENDED):
                return sight
            await self.pause(LOOK_SECONDS)
        return None

    async def write(self, write: Write) -> Attempt:
        """Write; a fifth of the time the same at once through another process; sometimes the key is asked for as well."""
        fate = self._chance.random()
        if fate < DUPLICATED_SHARE:
            first, _ = await asyncio.gather(self._writer.write(write), self._writer.write(write))
            return first
        if fate < DUPLICATED_SHARE + ASKED_SHARE:
            return await self._write_and_ask(write)
        return await self._writer.write(write)

    async def _write_and_ask(self, write: Write) -> Attempt:
        when = self._chance.choice(("before", "meanwhile", "meanwhile", "after", "after", "after"))
        if when == "before":
            await self._writer.ask(write)
        if when == "meanwhile":
            told, _ = await asyncio.gather(self._writer.write(write), self._writer.ask(write))
        else:
            told = await self._writer.write(write)
        if when == "after" or self._chance.random() < 0.5:
            await self._writer.ask(write)
        return told

    async def _key(self) -> str:
        """One of the library's own where it does the repeating."""
        if self._patient:
            with suppress(BerthError):
                return await self._chance.choice(self._tenant.clients).new_idempotency_key()
        return f"{self._prefix}.{next(self._numbers)}"


class LivingClient(ReservingClient, ABC):
    """A client that takes reservations through their lifecycle, one after the other, until it is stopped."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Return soon after it is stopped, with everything cancelled or released that has no end of the window."""
        self._stopping = stopping
        while not stopping.is_set():
            await self._live()
            await self.pause(self._chance.uniform(0.05, 0.4))

    @abstractmethod
    async def _live(self) -> None:
        """One reservation, from its hold to its end."""
