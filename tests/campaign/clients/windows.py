"""Load on windows: clients that want the same few units one after the other, each from the moment at which the last window
ends, and turn them into allocations.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.campaign.beside import beside
from tests.campaign.clients.holding import SEATS
from tests.campaign.clients.load import REGIONS, Renter
from tests.campaign.clients.reserving import LivingClient
from tests.campaign.history import Attempt, History, Outcome
from tests.support.waiting import pause

STEP_SECONDS = 4
"""Windows begin and end at multiples of this, so that they are back to back."""
STEPS_AHEAD_MAX = 1
TAKE_AGAIN_SECONDS = 0.25
EARLY_SHARE = 0.3
WATCH_SECONDS = 0.03


def next_step(now: datetime, ahead: int) -> datetime:
    """The beginning of the step after the next `ahead` ones; at least half a second away."""
    steps = math.ceil((now.timestamp() + 0.5) / STEP_SECONDS)
    return datetime.fromtimestamp((steps + ahead) * STEP_SECONDS, UTC)


class WindowClient(LivingClient):
    """Windows in the near future on `slots` and `nodes` (names of resources), back to back with those of its rivals."""

    def __init__(self, name: str, tenant: Renter, history: History, slots: Sequence[str], nodes: Sequence[str]) -> None:
        super().__init__(name, tenant, history)
        self._slots = slots
        self._nodes = nodes

    async def _live(self) -> None:
        asked = self._wish()
        if self._chance.random() < 0.3:
            await self._look_around(asked)
        id_ = await self.hold(asked)
        if id_ is None:
            return
        if self._chance.random() < 0.9 and not await self.confirm(id_):
            return
        fate = self._chance.random()
        if fate < 0.1:
            await self.cancel(id_)
            return
        if fate < 0.2:
            # No request follows: a hold expires, a confirmed window is released when it is over.
            await self.until(asked["ends_at"], self._chance.uniform(-0.1, 2.0))
            await self.look(id_)
            return
        await self._use(id_, asked)
        await self.look(id_)
        await self.cancel(id_)  # what is left of a bundle

    async def _use(self, reservation_id: UUID, asked: dict[str, Any]) -> None:
        """Take what is reserved from the moment at which its window begins, or a little before."""
        early = self._chance.random() < EARLY_SHARE
        late = self._chance.uniform(-2.0, -0.1) if early else self._chance.uniform(-0.02, 0.2)
        await self.until(asked["starts_at"], late)
        async with beside(resource_watch=lambda: self._watch(asked.get("resources", ()))):
            taken = await self._take_all(reservation_id, asked)
            for allocation_id in taken:
                await self.wait_active(allocation_id)
        if self._chance.random() < 0.4:
            await asyncio.gather(*(self.release(one) for one in taken))
        else:
            await self.until(asked["ends_at"], self._chance.uniform(0.0, 1.5))
        for allocation_id in taken:
            await self._reader.allocation(allocation_id)

    async def _take_all(self, reservation_id: UUID, asked: dict[str, Any]) -> list[UUID]:
        """One allocation after the other until the reservation has nothing left, or its window is over."""
        taken: list[UUID] = []
        sku = self._sku_of(asked)
        while datetime.now(UTC) < asked["ends_at"] and not self._stopping.is_set():
            told = await self.take(reservation_id, sku)
            if told.outcome is Outcome.DONE and told.allocation_id is not None:
                taken.append(told.allocation_id)
            elif not self._worth_another(told, asked):
                break
            else:
                await self.pause(TAKE_AGAIN_SECONDS)
        return taken

    @staticmethod
    def _worth_another(told: Attempt, asked: dict[str, Any]) -> bool:
        """Its window has not begun, its node is away for a moment, or the key was fenced off: another key may do."""
        if told.outcome is Outcome.FENCED or told.code == "resource_out_of_service":
            return True
        return told.code == "invalid_state" and datetime.now(UTC) < asked["starts_at"] + timedelta(seconds=0.3)

    async def _watch(self, names: Sequence[str]) -> None:
        """Read what is being turned over, again and again; more slowly when that takes long."""
        seconds = WATCH_SECONDS
        while True:
            if names:
                await self._reader.resource(self._chance.choice(names))
            await pause(seconds)
            seconds *= 1.1

    async def _look_around(self, asked: dict[str, Any]) -> None:
        if "sku" in asked:
            window = {name: asked[name] for name in ("sku", "region", "gpus", "count", "starts_at", "ends_at")}
            await self._reader.availability(**window)
        else:
            await self._reader.availability()

    def _sku_of(self, asked: dict[str, Any]) -> str | None:
        names = asked.get("resources", ())
        if not names:
            return None
        return "h100.metal" if set(names) & set(self._nodes) else "h100.slice"

    def _wish(self) -> dict[str, Any]:
        chance = self._chance
        starts_at = next_step(datetime.now(UTC), chance.randrange(STEPS_AHEAD_MAX + 1))
        ends_at = starts_at + timedelta(seconds=STEP_SECONDS * chance.choice((1, 1, 1, 2)))
        asked: dict[str, Any] = {
            "holder_id": self.name, "ttl_seconds": 5, "starts_at": starts_at, "ends_at": ends_at,
        }  # fmt: skip
        fate = chance.random()
        if fate < 0.55:
            asked["resources"] = sorted(chance.sample(self._slots, chance.choice((1, 1, 2))))
        elif fate < 0.7:
            asked["resources"] = [chance.choice(self._nodes)]
        else:
            asked |= {"sku": "h100.slice", "gpus": chance.choice((1, 1, 2)), "region": chance.choice(REGIONS)}
            asked["count"] = chance.choice((1, 1, 2))
        if "resources" in asked and chance.random() < 0.25:
            asked["resources"] = sorted([*asked["resources"], chance.choice(SEATS)])
        return asked
