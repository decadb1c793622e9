"""A prepaid tenant: clients that spend its balance, and an operator that tops it up, withdraws, and changes the price."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from berth.client import AsyncClient, BerthError
from berth.local import fleet
from tests.campaign.clients.accounts import requests
from tests.campaign.clients.load import DUPLICATED_SHARE, Renter, RentingClient
from tests.campaign.clients.writes import Write
from tests.campaign.clients.writing import Writer
from tests.campaign.history import History
from tests.support.waiting import pause

SKU = "h100.metered"
COUNTS = (1, 2, 4)
PRICES = (700_000, 1_000_000, 1_333_333)
"""Micro-units per GPU and second: a price of a million is one unit."""
EVERY_SECONDS = (0.8, 3.0)
TOP_UP_SECONDS = (0.3, 4.0)
"""A top-up pays so many seconds of one GPU at the middle price."""
AGAIN_SECONDS = 0.5
WITHDRAWN_SHARE = 0.12
PRICED_SHARE = 0.15
CHANGED_SHARE = 0.3
"""How many of the repeated payments have another amount, which must be refused."""


class SpendingClient(RentingClient):
    """Rents what the treasurer has paid for, until nothing is left, and tries again."""

    held_seconds_max = 10.0

    def __init__(self, number: int, renter: Renter, history: History) -> None:
        super().__init__(number, renter, history)
        self._prefix = f"{history.seed}.spending{number}"

    def _wish(self) -> Mapping[str, Any]:
        return {"sku": SKU, "gpus": self._chance.choice(COUNTS)}


class Treasurer:
    """An operator with the account of one tenant; each payment is retried under its key until its outcome is definite."""

    def __init__(self, admins: list[AsyncClient], tenant_id: UUID, history: History) -> None:
        self.name = "treasurer"
        self._admins = admins
        self._tenant_id = tenant_id
        self._history = history
        self._chance = random.Random(f"treasurer:{history.seed}")
        self._numbers = iter(range(1_000_000))
        self._writer = Writer(self.name, admins, history, random.Random(f"paying:{history.seed}"))

    def give_up_at(self, at: float) -> None:
        """From `at` on no payment is repeated any more."""
        self._writer.give_up_at = at

    async def run(self, stopping: asyncio.Event) -> None:
        """Pay now and then until stopped; every payment that was begun has a definite outcome then."""
        while not stopping.is_set():
            await pause(self._chance.uniform(*EVERY_SECONDS), stopping)
            if stopping.is_set():
                return
            if self._chance.random() < PRICED_SHARE:
                await self._set_price(self._chance.choice(PRICES))
            else:
                await self._pay(self._payment())

    def _payment(self, key: str | None = None) -> Write:
        amount = int(self._chance.uniform(*TOP_UP_SECONDS) * PRICES[1])
        key = key or f"{self._history.seed}.treasurer.{next(self._numbers)}"
        if self._chance.random() < WITHDRAWN_SHARE:
            return requests.withdraw(key, self._tenant_id, amount // 4)
        return requests.top_up(key, self._tenant_id, amount)

    async def _pay(self, write: Write) -> None:
        if self._chance.random() >= DUPLICATED_SHARE:
            await self._writer.write(write)
            return
        again = self._payment(write.key) if self._chance.random() < CHANGED_SHARE else write
        await asyncio.gather(self._writer.write(write), self._writer.write(again))
        await self._writer.write(write)

    def _price_key(self) -> str:
        return f"{self._history.seed}.treasurer.price.{next(self._numbers)}"

    async def _set_price(self, price: int) -> None:
        """Set a price, however long that takes: only a response names the price's version."""
        key = self._price_key()
        while time.monotonic() < self._writer.give_up_at:
            try:
                async with asyncio.timeout(5.0):
                    await put_price(self._chance.choice(self._admins), price, key, self._history)
            except (BerthError, TimeoutError) as error:
                code = getattr(error, "code", "client_timeout")
                self._history.count_read(f"price {code}")
                if code == "operation_fenced":  # another client asked for the outcome first: it never runs
                    key = self._price_key()
                await pause(AGAIN_SECONDS)
            else:
                return


async def put_price(client: AsyncClient, price: int, key: str, history: History) -> None:
    """Sell the SKU at this price from now on."""
    sku = await client.put_sku(
        SKU, shape="gpu_slice", gpu_model=fleet.GPU_MODEL, allowed_counts=COUNTS, default_image=fleet.IMAGE,
        price_micro_per_gpu_second=price, idempotency_key=key,
    )  # fmt: skip
    history.count_read("price ok")
    history.accounts.prices[sku.name, sku.price_version] = sku.price_micro_per_gpu_second
