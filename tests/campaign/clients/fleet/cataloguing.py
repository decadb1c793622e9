"""An operator changes what is sold, and a tenant buys it meanwhile: before, while and after each change."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from berth.client import AsyncClient
from berth.client.hardware.images import Image
from tests.campaign.clients import writes
from tests.campaign.clients.fleet import changes
from tests.campaign.clients.fleet.changes import State
from tests.campaign.clients.fleet.operator import FleetOperator
from tests.campaign.clients.load import REGIONS, Renter
from tests.campaign.clients.reading import Reader
from tests.campaign.clients.writing import Writer
from tests.campaign.history import History, Outcome
from tests.support.waiting import pause

SKU = "h100.campaign"
IMAGE = "campaign"
DEFAULT_IMAGE = "ubuntu-24.04"
BOUGHT_AT_ONCE_MAX = 3
KEPT_SECONDS = (0.2, 3.0)


class CatalogueOperator(FleetOperator):
    """One SKU, one image, the names of regions and the policies of pools. `buyer`: the tenant."""

    def __init__(self, admins: Sequence[AsyncClient], buyer: Renter, history: History) -> None:
        super().__init__("catalogue", admins, history)
        self._buyer = buyer
        self._buying = Writer("buyer", buyer.clients, history, random.Random(f"buyer:{history.seed}"))
        self._reader = Reader("buyer", buyer.clients, history, self._chance)
        self._bought: set[asyncio.Task[None]] = set()
        self._prices = iter(range(1_000, 1_000_000))
        self._like: Image | None = None
        self._pools: list[int] = []

    def give_up_at(self, at: float) -> None:
        """From `at` on no write is repeated any more."""
        super().give_up_at(at)
        self._buying.give_up_at = at

    async def _change(self) -> None:
        if self._like is None:
            self._like = await self.read("image", lambda client: client.get_image(DEFAULT_IMAGE))
            pools = await self.read("pools", lambda client: client.list_pools(limit=100))
            self._pools = [pool.id for pool in pools.items]
            await self._put_sku("active")
            await self._put_image(self._like, "active")
        fate = self._chance.random()
        if fate < 0.35:
            await self._another_price()
        elif fate < 0.6:
            await self._retire_sku()
        elif fate < 0.8:
            await self._retire_image(self._like)
        elif fate < 0.9:
            region = self._chance.choice(REGIONS)
            named = [changes.put_region("", region, f"Region {next(self._prices)}") for _ in range(2)]
            key = self.key()
            await self.write(writes.keyed(named[0], key), named[1])
        else:
            pool, policy = self._chance.choice(self._pools), self._chance.choice(("off", "offered"))
            await self.write(changes.set_pool(self.key(), pool, policy))  # type: ignore[arg-type]

    async def _finish(self) -> None:
        await asyncio.gather(*self._bought)

    async def _another_price(self) -> None:
        """A price changes while the SKU is bought."""
        self._buy()
        await self._put_sku("active")
        self._buy()

    async def _retire_sku(self) -> None:
        """After the answer nothing is sold, through whichever process; then it is again."""
        self._buy()
        await self._put_sku("retired")
        await asyncio.gather(*(self._create({}) for _ in self._buyer.clients))
        await self.pause(self._chance.uniform(0.0, 1.0))
        await self._create({})
        await self._put_sku("active")
        self._buy()

    async def _retire_image(self, like: Image) -> None:
        """An image is not offered after its retirement; one that nothing needs is deleted, and made again."""
        self._buy(image=IMAGE)
        await self._put_image(like, "retired")
        await asyncio.gather(*(self._create({"image": IMAGE}) for _ in self._buyer.clients))
        if self._chance.random() < 0.5:
            await self.write(changes.delete_image(self.key(), IMAGE))
            await self._create({"image": IMAGE})
        await self._put_image(like, "active")

    async def _put_sku(self, state: State) -> None:
        price, other = (changes.put_sku("", SKU, DEFAULT_IMAGE, next(self._prices), state) for _ in range(2))
        await self.write(writes.keyed(price, self.key()), other)

    async def _put_image(self, like: Image, state: State) -> None:
        regions = self._chance.choice((None, REGIONS))
        await self.write(changes.put_image(self.key(), IMAGE, like, regions, state))

    def _buy(self, **asked: Any) -> None:
        """Create, use for a moment and release, beside whatever follows."""
        if len(self._bought) >= BOUGHT_AT_ONCE_MAX:
            return
        task = asyncio.create_task(self._create(asked))
        self._bought.add(task)
        task.add_done_callback(self._bought.discard)

    async def _create(self, asked: dict[str, Any]) -> None:
        wanted = {"sku": SKU, "gpus": 1, "region": self._chance.choice(REGIONS), **asked}
        made = await self._buying.write(writes.create(self.key(), wanted, list(self._buyer.keys)))
        if made.outcome is not Outcome.DONE or made.allocation_id is None:
            return
        await self._reader.allocation(made.allocation_id)
        await pause(self._chance.uniform(*KEPT_SECONDS), self._stopping)
        await self._reader.allocation(made.allocation_id)
        await self._buying.write(writes.release(self.key(), made.allocation_id))
