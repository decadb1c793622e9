"""Clients of one tenant with low quotas and a low rate: they request more than is allowed."""

from __future__ import annotations

import uuid
from typing import Any

import asyncssh

from berth.client import SshKey, Webhook
from tests.campaign.clients import writes
from tests.campaign.clients.accounts import requests
from tests.campaign.clients.accounts.receiving import UNRECORDED, HookReceiver
from tests.campaign.clients.load import REGIONS, Renter
from tests.campaign.clients.reserving import LivingClient
from tests.campaign.history import History, Outcome

TENANT_ID = uuid.uuid5(uuid.NAMESPACE_URL, "campaign: the tenant with a low rate")
"""Known before the tenant is made: the rate of a single tenant is a setting of the processes."""
GPUS_MAX = 3
LIMITS = {"reservations": 2, "holds": 1, "webhooks": 2, "ssh_keys": 3}
"""Of SSH keys, one is the tenant's first, which its allocations use."""
WRITES_PER_SECOND, READS_PER_SECOND = 0.6, 3.0
BURST_SECONDS = 4
"""How many seconds' requests a principal may send at once."""
HELD_SECONDS = (0.2, 1.5)


class CrowdingClient(LivingClient):
    """Takes GPUs, holds, webhooks and SSH keys in turn, and gives each back."""

    def __init__(self, name: str, tenant: Renter, receiver: HookReceiver, history: History) -> None:
        super().__init__(name, tenant, history)
        self._receiver = receiver

    async def _live(self) -> None:
        turn = self._chance.random()
        if turn < 0.4:
            await self._rent()
        elif turn < 0.7:
            await self._reserve()
        elif turn < 0.85:
            await self._have_hook()
        else:
            await self._have_key()

    async def _rent(self) -> None:
        asked: dict[str, Any] = {"sku": "h100.slice", "gpus": self._chance.choice((1, 2)), "region": self._region()}
        made = await self.write(writes.create(await self._key(), asked, list(self._tenant.keys)))
        if made.outcome is not Outcome.DONE or made.allocation_id is None:
            return
        if self._chance.random() < 0.7:
            await self.wait_active(made.allocation_id)
        await self.pause(self._chance.uniform(*HELD_SECONDS))
        await self.release(made.allocation_id)

    async def _reserve(self) -> None:
        asked = {
            "holder_id": self.name, "ttl_seconds": self._chance.choice((1, 5)), "sku": "h100.slice",
            "gpus": self._chance.choice((1, 2)), "region": self._region(),
        }  # fmt: skip
        id_ = await self.hold(asked)
        if id_ is None:
            return
        if self._chance.random() < 0.6 and await self.confirm(id_):
            await self.pause(self._chance.uniform(*HELD_SECONDS))
        await self.cancel(id_)
        await self.look(id_)

    async def _have_hook(self) -> None:
        made: list[Webhook] = []
        key = await self._key()
        url = self._receiver.url(f"{UNRECORDED}/{key}")
        told = await self._writer.write(requests.create_hook(key, url, ("balance.low",), "hmac", made.append))
        if told.outcome is not Outcome.DONE:
            return
        await self.pause(self._chance.uniform(*HELD_SECONDS))
        await self._writer.write(requests.delete_hook(await self._key(), made[0].id))

    async def _have_key(self) -> None:
        made: list[SshKey] = []
        public = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
        told = await self._writer.write(requests.add_key(await self._key(), public, made.append))
        if told.outcome is not Outcome.DONE:
            return
        await self.pause(self._chance.uniform(*HELD_SECONDS))
        await self._writer.write(requests.remove_key(await self._key(), made[0].id))

    def _region(self) -> str:
        return self._chance.choice(REGIONS)
