"""The load: clients that create, look, release, cancel, force and list, and repeat a fifth of their writes.

What a client does next is drawn from the seed; how long each answer takes is not, so two runs of one seed take the same
decisions and meet other interleavings.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from berth.client import AsyncClient
from tests.campaign.clients import writes
from tests.campaign.clients.reading import Reader
from tests.campaign.clients.writes import Write
from tests.campaign.clients.writing import Writer
from tests.campaign.history import Attempt, History, Outcome, Sight
from tests.support.waiting import pause

ACTIVE_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.15
DUPLICATED_SHARE = 0.2
SLICE_GPUS = (1, 1, 1, 2, 2, 4, 8)
REGIONS = ("eu-1", "us-1")
ENDING_SHARE = 0.12
"""How many are created with a near `ends_at`."""
CHANGED_SHARE = 0.15
"""How many get another end, some while their provision runs."""
ENDED = frozenset({"released", "failed", "release_failed"})


@dataclass(frozen=True)
class Renter:
    """A tenant of the campaign, as seen by its clients."""

    name: str
    keys: Sequence[UUID]
    clients: Sequence[AsyncClient]
    admins: Sequence[AsyncClient]
    tenant_id: UUID | None = None


class RentingClient:
    """One client that takes allocations through their lifecycle, one after the other, until it is stopped."""

    held_seconds_max = 1.5
    """How long an active allocation is kept at most."""

    def __init__(self, number: int, renter: Renter, history: History) -> None:
        self.name = f"client {number}"
        self._renter = renter
        self._history = history
        self._chance = random.Random(f"load:{history.seed}:{number}")
        self._numbers = iter(range(1_000_000))
        self._prefix = f"{history.seed}.{number}"
        self._writer = Writer(self.name, renter.clients, history, random.Random(f"writes:{history.seed}:{number}"))
        self._reader = Reader(self.name, renter.clients, history, self._chance)
        self._admin = Writer(f"{self.name} as admin", renter.admins, history, random.Random(f"admin:{number}"))
        self._duplicates: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Return when stopped and every operation begun has a definite outcome."""
        self._stopping = stopping
        while not stopping.is_set():
            await self._live()
            if self._chance.random() < 0.15:
                await self._reader.allocations()
            await pause(self._chance.uniform(0.05, 0.4), stopping)
        await asyncio.gather(*self._duplicates)

    def give_up_at(self, at: float) -> None:
        """From `at` on no write is repeated any more."""
        self._writer.give_up_at = self._admin.give_up_at = at

    async def _live(self) -> None:
        made = await self._write(self._create(), self._writer)
        if made.outcome is not Outcome.DONE or made.allocation_id is None:
            return
        allocation_id = made.allocation_id
        await self.look(allocation_id)
        fate = self._chance.random()
        if fate < 0.35:
            await pause(self._chance.choice((0.0, 0.0, 0.05, 0.15, 0.4)), self._stopping)
        else:
            await self._wait_active(allocation_id)
            await pause(self._chance.uniform(0.0, self.held_seconds_max), self._stopping)
            await self.look(allocation_id)
        if self._chance.random() < CHANGED_SHARE:
            await self._write(self._change_end(allocation_id), self._writer)
            await self.look(allocation_id)
        if self._chance.random() < 0.12:
            await self._write(self._force(allocation_id), self._admin)
        else:
            await self._write(self._release(allocation_id), self._writer)
        await self.look(allocation_id)
        if self._chance.random() < 0.3:
            await pause(self._chance.uniform(0.2, 2.0), self._stopping)
            await self.look(allocation_id)

    async def _wait_active(self, allocation_id: UUID) -> None:
        until = time.monotonic() + ACTIVE_SECONDS_MAX
        while time.monotonic() < until and not self._stopping.is_set():
            sight = await self.look(allocation_id)
            if sight is not None and (sight.state == "active" or sight.state in ENDED):
                return
            await pause(LOOK_SECONDS, self._stopping)

    async def look(self, allocation_id: UUID) -> Sight | None:
        """Read one allocation through any API process; None if there was no answer."""
        return await self._reader.allocation(allocation_id)

    async def _write(self, write: Write, writer: Writer) -> Attempt:
        """Write; a fifth of the time the same again, now or later, sometimes with other content."""
        if self._chance.random() >= DUPLICATED_SHARE:
            return await writer.write(write)
        repeated = self._altered(write) if self._chance.random() < 0.3 else write
        if self._chance.random() < 0.5:
            self._later(repeated, writer, 0.0)
            return await writer.write(write)
        first = await writer.write(write)
        self._later(repeated, writer, self._chance.uniform(0.0, 4.0))
        return first

    def _later(self, write: Write, writer: Writer, seconds: float) -> None:
        async def repeat() -> None:
            await pause(seconds, self._stopping)
            await writer.write(write)

        task = asyncio.create_task(repeat())
        self._duplicates.add(task)
        task.add_done_callback(self._duplicates.discard)

    def _altered(self, write: Write) -> Write:
        """Another write under the same key: another create, or a release of what there is not."""
        other = self._create() if write.kind == "create" else self._release(UUID(int=self._chance.getrandbits(128)))
        if write.kind == "force_release":
            other = self._force(UUID(int=self._chance.getrandbits(128)))
        if write.kind == "update":
            other = self._change_end(UUID(int=self._chance.getrandbits(128)))
        return replace(other, key=write.key)

    def _key(self) -> str:
        return f"{self._prefix}.{next(self._numbers)}"

    def _wish(self) -> Mapping[str, Any]:
        """The SKU and the number of GPUs of the next create."""
        metal = self._chance.random() < 0.12
        return (
            {"sku": "h100.metal", "gpus": 8}
            if metal
            else {"sku": "h100.slice", "gpus": self._chance.choice(SLICE_GPUS)}
        )

    def _create(self) -> Write:
        chance = self._chance
        asked: dict[str, Any] = {
            **self._wish(), "region": chance.choice(REGIONS), "name": f"n{chance.getrandbits(32):08x}",
        }  # fmt: skip
        if chance.random() < ENDING_SHARE:
            asked["ends_at"] = datetime.now(UTC) + timedelta(seconds=chance.choice((2, 4, 6)))
        return writes.create(self._key(), asked, list(self._renter.keys))

    def _release(self, allocation_id: UUID) -> Write:
        return writes.release(self._key(), allocation_id)

    def _change_end(self, allocation_id: UUID) -> Write:
        seconds = self._chance.choice((2, 5, 3_600, None))
        ends_at = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
        return writes.change_end(self._key(), allocation_id, ends_at)

    def _force(self, allocation_id: UUID) -> Write:
        return writes.force_release(self._key(), allocation_id)
