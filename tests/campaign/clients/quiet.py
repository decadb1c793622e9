"""After the run: what availability promises can be reserved, no more and no less, and from the promised time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from berth.client import AsyncClient, BerthError
from tests.campaign.clients.load import REGIONS, Renter
from tests.campaign.clients.reserving import ReservingClient
from tests.campaign.history import History, Outcome
from tests.campaign.judging.judging_clients import Violation
from tests.support.waiting import read_until

ONLINE_SECONDS_MAX = 20.0
WINDOW_SECONDS = 30
GPUS = 2


async def online(admin: AsyncClient) -> list[str]:
    """Wait until every node that is not retired is there with all its slots; a sentence for each that is not in time."""

    async def missing() -> list[str]:
        try:
            nodes = [node async for node in admin.iterate_nodes()]
        except BerthError as error:
            return [f"nodes cannot be asked for: {error}"]
        return [
            f"{node.name} has {node.free_slots} of {node.slot_count} slots free, state {node.state}, online {node.online}"
            for node in nodes
            if node.state != "retired"
            and (not node.online or node.state != "active" or node.free_slots != node.slot_count)
        ]

    return await read_until(missing, lambda sentences: not sentences, ONLINE_SECONDS_MAX)


class QuietClient(ReservingClient):
    """Reserves alone, and holds what it gets against what it was promised."""

    def __init__(self, tenant: Renter, history: History) -> None:
        super().__init__("quiet", tenant, history)
        self._held: list[UUID] = []

    async def judge(self) -> list[Violation]:
        """Everything that was promised and not had, in every region."""
        found = [sentence for region in REGIONS for sentence in await self._region(region)]
        for reservation_id in self._held:
            await self.cancel(reservation_id)
        return [Violation("availability", sentence) for sentence in found]

    async def _region(self, region: str) -> Sequence[str]:
        starts_at = datetime.now(UTC) + timedelta(seconds=WINDOW_SECONDS)
        ends_at = starts_at + timedelta(seconds=WINDOW_SECONDS)
        wish = {"sku": "h100.slice", "region": region, "gpus": GPUS, "starts_at": starts_at, "ends_at": ends_at}
        offer = await self._offer(wish)
        if offer is None or not offer.available or offer.free_gpus != offer.total_gpus:
            return [f"{region}: nothing is allocated, and the offer is {offer}"]
        if await self._hold(wish | {"count": offer.available}) is None:
            return [f"{region}: {offer.available} were promised and not had"]
        if await self._hold(wish) is not None:
            return [f"{region}: one more than {offer.available} was had"]
        full = await self._offer(wish)
        if full is None or full.available or full.earliest_at != ends_at:
            return [f"{region}: everything is taken until {ends_at}, and the offer is {full}"]
        later = wish | {"starts_at": full.earliest_at, "ends_at": ends_at + timedelta(seconds=WINDOW_SECONDS)}
        return [] if await self._hold(later) is not None else [f"{region}: the earliest place could not be had: {full}"]

    async def _offer(self, wish: dict[str, Any]) -> Any:
        gives_up = time.monotonic() + ONLINE_SECONDS_MAX
        while time.monotonic() < gives_up:
            for offer in await self._reader.availability(**wish):
                return offer
        return None

    async def _hold(self, wish: dict[str, Any]) -> UUID | None:
        asked = {"holder_id": self.name, "ttl_seconds": 60, **wish}
        for _ in range(3):
            reservation_id = await self.hold(asked)
            if reservation_id is not None:
                self._held.append(reservation_id)
                return reservation_id
            if self._history.attempts[-1].outcome is not Outcome.FENCED:
                return None
        return None
