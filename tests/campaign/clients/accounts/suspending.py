"""The owner of webhooks whose tenant an operator suspends at times: nothing is sent meanwhile, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Literal
from uuid import UUID

import asyncssh

from berth.client import AsyncClient, BerthError, SshKey
from tests.campaign.accounts import Hook, Pause
from tests.campaign.clients.accounts import requests
from tests.campaign.clients.accounts.owning import HookOwner
from tests.campaign.clients.accounts.receiving import HookReceiver
from tests.campaign.clients.load import Renter
from tests.campaign.history import History, Outcome
from tests.support.waiting import pause

SUSPENDED_SHARE = 0.3
SUSPENDED_SECONDS = (1.0, 10.0)
KEYS_MAX = 3
AGAIN_SECONDS = 0.5


class SuspendedOwner(HookOwner):
    """Emits events by adding and removing SSH keys, as no other client uses the tenant."""

    def __init__(
        self,
        name: str,
        tenant_id: UUID,
        tenant: Renter,
        receiver: HookReceiver,
        history: History,
        admins: Sequence[AsyncClient],
    ) -> None:
        super().__init__(name, tenant_id, tenant, receiver, history)
        self._admins = admins

    async def _change(self, hook: Hook, webhook_id: UUID, stopping: asyncio.Event) -> bool:
        for _ in range(self._chance.randrange(KEYS_MAX + 1)):
            await self._have_key()
        if self._chance.random() < SUSPENDED_SHARE:
            await self._suspend(stopping)
        return await super()._change(hook, webhook_id, stopping)

    async def _have_key(self) -> None:
        made: list[SshKey] = []
        public = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
        told = await self._write(requests.add_key(self.key(), public, made.append))
        if told.outcome is Outcome.DONE:
            await self._write(requests.remove_key(self.key(), made[0].id))

    async def _suspend(self, stopping: asyncio.Event) -> None:
        """Suspend the tenant with events waiting, and let it go on."""
        await self._set_tenant("suspended")
        pauses = [Pause(time.monotonic()) for _ in self.hooks]
        for hook, suspended in zip(self.hooks, pauses, strict=True):
            if hook is not None:
                hook.pauses.append(suspended)
        await pause(self._chance.uniform(*SUSPENDED_SECONDS), stopping)
        for suspended in pauses:
            suspended.ended_asked = time.monotonic()
        await self._set_tenant("active")

    async def _set_tenant(self, state: Literal["active", "suspended"]) -> None:
        """However long it takes: a tenant that stays suspended would end the load of its owner."""
        key = self.key()
        while True:
            try:
                async with asyncio.timeout(5.0):
                    client = self._chance.choice(self._admins)
                    await client.set_tenant_state(self.tenant_id, state=state, idempotency_key=key)
            except (BerthError, TimeoutError) as error:
                code = getattr(error, "code", "client_timeout")
                self._history.count_read(f"{state} {code}")
                if code == "operation_fenced":  # another client asked for the outcome first: it never runs
                    key = self.key()
                await pause(AGAIN_SECONDS)
            else:
                self._history.count_read(f"{state} ok")
                return
