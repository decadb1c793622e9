"""Tenants of whole machines: they create one, switch it, rebuild or rescue it at times, and release it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from berth.client import Allocation, AsyncClient
from tests.campaign.clients import writes
from tests.campaign.clients.load import ENDED, RentingClient
from tests.campaign.clients.writes import Write
from tests.campaign.history import Outcome
from tests.campaign.machines.stage import REGION, SKU, SLOTS
from tests.support.waiting import pause

ACTIVE_SECONDS_MAX = 120.0
VERB_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.5
VERB_SHARE, EARLY_SHARE, FORCED_SHARE = 0.45, 0.12, 0.1
Send = Callable[[AsyncClient, UUID, str], Awaitable[Allocation]]
VERBS: Mapping[str, Send] = {
    "stop": lambda client, id_, key: client.stop_allocation(id_, idempotency_key=key),
    "start": lambda client, id_, key: client.start_allocation(id_, idempotency_key=key),
    "reboot": lambda client, id_, key: client.reboot_allocation(id_, idempotency_key=key),
    "rebuild": lambda client, id_, key: client.rebuild_allocation(id_, idempotency_key=key),
    "rescue": lambda client, id_, key: client.rescue_allocation(id_, idempotency_key=key),
}


def verb(key: str, name: str, allocation_id: UUID) -> Write:
    """A verb of an active allocation."""

    async def send(client: AsyncClient, key: str) -> Allocation:
        return await VERBS[name](client, allocation_id, key)

    return Write("verb", key, f"{name} {allocation_id}", send, allocation_id)


class MachineTenant(RentingClient):
    """One machine after the other."""

    held_seconds_max = 4.0

    async def _live(self) -> None:
        made = await self._write(self._create(), self._writer)
        if made.outcome is not Outcome.DONE or made.allocation_id is None:
            await pause(self._chance.uniform(1.0, 3.0), self._stopping)
            return
        allocation_id = made.allocation_id
        if self._chance.random() < EARLY_SHARE:
            await pause(self._chance.uniform(0.0, 10.0), self._stopping)
        elif await self._wait_for(allocation_id, {"active"}, ACTIVE_SECONDS_MAX):
            await self._use(allocation_id)
        forced = self._chance.random() < FORCED_SHARE
        release, writer = (self._force, self._admin) if forced else (self._release, self._writer)
        await self._write(release(allocation_id), writer)
        await self._wait_for(allocation_id, set(), ACTIVE_SECONDS_MAX)

    async def _use(self, allocation_id: UUID) -> None:
        """Keep it for a while, with a verb at times whose end is not waited for at times."""
        await pause(self._chance.uniform(0.0, self.held_seconds_max), self._stopping)
        if self._chance.random() >= VERB_SHARE:
            return
        name = self._chance.choice(list(VERBS))
        await self._write(verb(self._key(), name, allocation_id), self._writer)
        await pause(
            self._chance.uniform(0.0, VERB_SECONDS_MAX if name in ("rebuild", "rescue") else 10.0) / 3, self._stopping
        )
        await self.look(allocation_id)

    async def _wait_for(self, allocation_id: UUID, states: set[str], seconds: float) -> bool:
        """Whether it reached one of these states; False at its end, or when the time is up."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._stopping.is_set():
            sight = await self.look(allocation_id)
            if sight is not None and sight.state is not None:
                if sight.state in states:
                    return True
                if sight.state in ENDED:
                    return False
            await pause(LOOK_SECONDS, self._stopping)
        return False

    def _altered(self, write: Write) -> Write:
        if write.kind == "verb":
            return verb(write.key, "reboot", UUID(int=self._chance.getrandbits(128)))
        return super()._altered(write)

    def _create(self) -> Write:
        asked: dict[str, Any] = {
            "sku": SKU,
            "gpus": SLOTS,
            "region": REGION,
            "name": f"m{self._chance.getrandbits(32):08x}",
        }
        return writes.create(self._key(), asked, list(self._renter.keys))
