"""Load on reservations that carry their allocation: it starts by itself when its window begins, and ends with it."""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.campaign.clients.load import REGIONS
from tests.campaign.clients.reserving import LivingClient
from tests.campaign.clients.windows import next_step

LATE_SECONDS_MAX = 8.0
"""So long a client looks for an allocation that should have started by itself."""
LOOK_SECONDS = 0.3


class StartingClient(LivingClient):
    """Reserves with a template, and looks on."""

    async def _live(self) -> None:
        mark = uuid.UUID(int=self._chance.getrandbits(128)).hex
        asked = self._wish(mark)
        id_ = await self.hold(asked)
        if id_ is None:
            return
        if self._chance.random() < 0.1 or not await self.confirm(id_):
            # A hold never starts by itself.
            await self.pause(self._chance.uniform(0.0, asked["ttl_seconds"] + 0.5))
            await self.look(id_)
            return
        if self._chance.random() < 0.1:
            # Whichever is first: the cancel or the start.
            await self.until(asked.get("starts_at", datetime.now(UTC)), self._chance.uniform(-0.2, 1.0))
            await self.cancel(id_)
        await self.until(asked.get("starts_at", datetime.now(UTC)))
        started = await self._wait_started(id_, mark, asked["count"])
        for allocation_id in started:
            await self.wait_active(allocation_id)
        if "ends_at" in asked and self._chance.random() < 0.7:
            await self.until(asked["ends_at"], self._chance.uniform(0.0, 2.0))
            for allocation_id in started:
                await self._reader.allocation(allocation_id)
        else:
            await asyncio.gather(*(self.release(one) for one in started))
        await self.look(id_)
        await self.cancel(id_)

    async def _wait_started(self, reservation_id: UUID, mark: str, count: int) -> list[UUID]:
        """The allocations that the template became, as far as they have come in time."""
        gives_up = time.monotonic() + LATE_SECONDS_MAX
        while True:
            found = sorted({sight.allocation_id for sight in await self._reader.allocations(label=f"mark={mark}")})
            if len(found) == count or time.monotonic() > gives_up or self._stopping.is_set():
                return found
            shown = await self._reader.reservation(reservation_id)
            if shown is not None and shown.status not in ("hold", "confirmed", "consumed"):
                return found
            await self.pause(LOOK_SECONDS)

    def _wish(self, mark: str) -> dict[str, Any]:
        chance = self._chance
        template = {"ssh_key_ids": [str(key) for key in self._tenant.keys], "labels": {"mark": mark}}
        asked: dict[str, Any] = {
            "holder_id": self.name, "ttl_seconds": chance.choice((2, 5)), "allocation": template, "sku": "h100.slice",
            "gpus": chance.choice((1, 1, 2, 4)), "region": chance.choice(REGIONS), "count": chance.choice((1, 1, 2)),
        }  # fmt: skip
        starts_at = datetime.now(UTC)
        if chance.random() < 0.8:
            starts_at = asked["starts_at"] = next_step(starts_at, 0)
        if chance.random() < 0.8:
            asked["ends_at"] = starts_at + timedelta(seconds=chance.choice((3, 5, 8)))
        return asked
