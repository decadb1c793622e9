"""Load on reservations: clients that hold seats and GPUs, confirm in time, at the deadline or never, and cancel."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from berth.client import AsyncClient, BerthError, Reservation
from tests.campaign.history import Attempt, History, Outcome
from tests.campaign.load import READ_SECONDS_MAX, REGIONS
from tests.campaign.writing import Write, Writer, hold_sight_of

SEATS = ("seat-0", "seat-1", "seat-2")
TTL_SECONDS = (1, 1, 2, 3)
DUPLICATED_SHARE = 0.2


class HoldingClient:
    """One client: it lives through one reservation after the other until told to stop, and leaves none confirmed."""

    def __init__(self, number: int, clients: Sequence[AsyncClient], history: History) -> None:
        self.name = f"holder {number}"
        self._clients = clients
        self._history = history
        self._chance = random.Random(f"holding:{history.seed}:{number}")
        self._numbers = iter(range(1_000_000))
        self._prefix = f"{history.seed}.h{number}"
        self._writer = Writer(self.name, clients, history, random.Random(f"held:{history.seed}:{number}"))

    async def run(self, stopping: asyncio.Event) -> None:
        """Return when told to stop and the last reservation has been given back."""
        while not stopping.is_set():
            await self._live()
            await asyncio.sleep(self._chance.uniform(0.05, 0.4))

    def give_up_at(self, at: float) -> None:
        """From `at` on no write is repeated any more."""
        self._writer.give_up_at = at

    async def _live(self) -> None:
        held = await self._write(self._hold())
        if held.outcome is not Outcome.DONE or held.reservation_id is None:
            return
        id_, ttl_seconds = held.reservation_id, json.loads(held.content)["ttl_seconds"]
        fate = self._chance.random()
        if fate < 0.25:
            await asyncio.sleep(ttl_seconds + self._chance.uniform(-0.1, 0.8))
            await self.look(id_)
            return
        # In time, or when the sweeper and rivals are about to come as well.
        await asyncio.sleep(self._chance.uniform(0, 0.4) if fate < 0.6 else max(0.0, ttl_seconds - 0.05))
        confirmed = await self._write(self._about("confirm", id_))
        if confirmed.outcome is Outcome.DONE:
            await asyncio.sleep(self._chance.uniform(0.0, 2.0))
            await self.look(id_)
        await self._write(self._about("cancel", id_))
        await self.look(id_)

    async def look(self, reservation_id: UUID) -> None:
        """Read it through any API process."""
        asked = time.monotonic()
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                found = await self._chance.choice(self._clients).get_reservation(reservation_id)
        except (BerthError, TimeoutError) as error:
            self._history.count_read(f"reservation {getattr(error, 'code', 'client_timeout')}")
        else:
            self._history.holds.append(hold_sight_of(found, asked))

    async def _write(self, write: Write) -> Attempt:
        """Write; a fifth of the time the same at once through another process."""
        if self._chance.random() >= DUPLICATED_SHARE:
            return await self._writer.write(write)
        first, _ = await asyncio.gather(self._writer.write(write), self._writer.write(write))
        return first

    def _key(self) -> str:
        return f"{self._prefix}.{next(self._numbers)}"

    def _hold(self) -> Write:
        chance = self._chance
        asked: dict[str, Any] = {"holder_id": self.name, "ttl_seconds": chance.choice(TTL_SECONDS)}
        if chance.random() < 0.6:
            asked["resources"] = sorted(chance.sample(SEATS, chance.choice((1, 1, 2))))
        else:
            asked |= {"sku": "h100.slice", "gpus": chance.choice((1, 2)), "region": chance.choice(REGIONS), "count": 1}
        if chance.random() < 0.2:
            asked["ends_at"] = datetime.now(UTC) + timedelta(seconds=chance.choice((1, 4)))

        async def send(client: AsyncClient, key: str) -> Reservation:
            return await client.create_reservation(**asked, idempotency_key=key)

        return Write("hold", self._key(), json.dumps(asked, default=str), send)

    def _about(self, verb: str, reservation_id: UUID) -> Write:
        async def send(client: AsyncClient, key: str) -> Reservation:
            act = client.confirm_reservation if verb == "confirm" else client.cancel_reservation
            return await act(reservation_id, holder_id=self.name, idempotency_key=key)

        kind = "confirm" if verb == "confirm" else "cancel"
        return Write(kind, self._key(), f"{verb} {reservation_id}", send, reservation_id=reservation_id)  # type: ignore[arg-type]
