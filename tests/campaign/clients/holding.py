"""Load on holds: clients that hold seats and GPUs, confirm in time, at the deadline or never, and cancel or take them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.campaign.clients.load import REGIONS
from tests.campaign.clients.reserving import LivingClient
from tests.campaign.history import Outcome

SEATS = ("seat-0", "seat-1", "seat-2")
TTL_SECONDS = (1, 2, 3, 5)


class HoldingClient(LivingClient):
    """Holds from now on; it leaves none confirmed."""

    async def _live(self) -> None:
        asked = self._wish()
        id_ = await self.hold(asked)
        if id_ is None:
            return
        fate = self._chance.random()
        if fate < 0.2:
            await self.pause(asked["ttl_seconds"] + self._chance.uniform(-0.1, 0.8))
            await self.look(id_)
            return
        # In time, or when the sweeper and rivals are about to come as well.
        await self.pause(self._chance.uniform(0, 0.4) if fate < 0.7 else max(0.0, asked["ttl_seconds"] - 0.05))
        confirmed = self._chance.random() < 0.8 and await self.confirm(id_)
        if self._chance.random() < 0.4:
            await self._use(id_)
        elif confirmed:
            await self.pause(self._chance.uniform(0.0, 2.0))
            await self.look(id_)
        await self.cancel(id_)
        await self.look(id_)

    async def _use(self, reservation_id: UUID) -> None:
        """Take one of its claims, whatever became of it, and give that back."""
        taken = await self.take(reservation_id)
        if taken.outcome is not Outcome.DONE or taken.allocation_id is None:
            return
        if self._chance.random() < 0.5:
            await self.wait_active(taken.allocation_id)
        await self.look(reservation_id)
        await self.release(taken.allocation_id)
        await self._reader.allocation(taken.allocation_id)

    def _wish(self) -> dict[str, Any]:
        chance = self._chance
        asked: dict[str, Any] = {"holder_id": self.name, "ttl_seconds": chance.choice(TTL_SECONDS)}
        if chance.random() < 0.5:
            asked["resources"] = sorted(chance.sample(SEATS, chance.choice((1, 1, 2))))
        else:
            asked |= {
                "sku": "h100.slice",
                "gpus": chance.choice((1, 2)),
                "region": chance.choice(REGIONS),
                "count": chance.choice((1, 1, 2)),
            }
        if chance.random() < 0.2:
            asked["ends_at"] = datetime.now(UTC) + timedelta(seconds=chance.choice((1, 4)))
        return asked
