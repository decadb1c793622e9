"""The owners of webhooks: they create, disable, enable, rotate, replay and delete them while events arrive."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta
from typing import Literal
from uuid import UUID

from berth.client import BerthError, Delivery, Webhook
from tests.campaign.accounts import Hook, Pause, SigningKey
from tests.campaign.clients.accounts import requests
from tests.campaign.clients.accounts.receiving import HookReceiver
from tests.campaign.clients.load import Renter
from tests.campaign.clients.writes import Write
from tests.campaign.clients.writing import Writer
from tests.campaign.history import Attempt, History, Outcome
from tests.support.waiting import pause

EVERY_SECONDS = (0.5, 2.5)
PAUSED_SECONDS = (0.2, 9.0)
OVERLAPS_SECONDS = (0, 3, 60)
WANTED: tuple[tuple[tuple[str, ...], Literal["hmac", "ed25519"]], ...] = (
    ((), "hmac"),
    (("provisioning.*",), "ed25519"),
)
"""Types and signatures of the webhooks that each owner keeps."""
DUPLICATED_SHARE = 0.2
PAGE = 500


class HookOwner:
    """Keeps the webhooks of one tenant, and knows for which versions each was enabled."""

    def __init__(self, name: str, tenant_id: UUID, tenant: Renter, receiver: HookReceiver, history: History) -> None:
        self.name = name
        self.tenant_id = tenant_id
        self._tenant = tenant
        self._receiver = receiver
        self._history = history
        self._chance = random.Random(f"owning:{history.seed}:{name}")
        self._numbers = iter(range(1_000_000))
        chance = random.Random(f"owned:{history.seed}:{name}")
        self._writer = Writer(name, tenant.clients, history, chance)
        self.hooks: list[Hook | None] = [None for _ in WANTED]
        """The live webhook of each place."""

    def give_up_at(self, at: float) -> None:
        """From `at` on no write is repeated any more."""
        self._writer.give_up_at = at

    async def run(self, stopping: asyncio.Event) -> None:
        """Return when stopped; the webhooks stay, enabled."""
        while not stopping.is_set():
            place = self._chance.randrange(len(self.hooks))
            hook = self.hooks[place]
            if hook is None or hook.webhook_id is None:
                self.hooks[place] = await self._create(place)
            else:
                await self.see(hook)
                if await self._change(hook, hook.webhook_id, stopping):
                    self.hooks[place] = None
            await pause(self._chance.uniform(*EVERY_SECONDS), stopping)

    async def see(self, hook: Hook) -> Webhook | None:
        """Read a webhook, and enable it again if its endpoint disabled it; None if there was no response."""
        assert hook.webhook_id is not None, "the webhook was created"
        try:
            async with asyncio.timeout(5.0):
                shown = await self._chance.choice(self._tenant.clients).get_webhook(hook.webhook_id)
        except (BerthError, TimeoutError) as error:
            self._history.count_read(f"webhook {getattr(error, 'code', 'client_timeout')}")
            return None
        self._history.count_read("webhook ok")
        if shown.state == "disabled":
            hook.disable(shown.position, time.monotonic())
            await self.set_state(hook, "enabled")
        return shown

    async def deliveries(self, hook: Hook) -> list[Delivery] | None:
        """Every delivery of a webhook; None if there was no response."""
        assert hook.webhook_id is not None, "the webhook was created"
        client = self._chance.choice(self._tenant.clients)
        try:
            return [one async for one in client.iterate_deliveries(hook.webhook_id, limit=PAGE)]
        except BerthError as error:
            self._history.count_read(f"deliveries {error.code}")
            return None

    async def replay_failed(self, hook: Hook) -> None:
        """Send again whatever has failed since the campaign began."""
        assert hook.webhook_id is not None, "the webhook was created"
        since = self._history.moment(self._history.began) - timedelta(seconds=60)
        await self._write(requests.replay_failed(self.key(), hook.webhook_id, since))

    def key(self) -> str:
        """A new idempotency key."""
        return f"{self._history.seed}.{self.name.replace(' ', '')}.{next(self._numbers)}"

    async def _change(self, hook: Hook, webhook_id: UUID, stopping: asyncio.Event) -> bool:
        """One change by the seed; whether the webhook is deleted."""
        fate = self._chance.random()
        if fate < 0.2:
            await self.set_state(hook, "disabled")
            await pause(self._chance.uniform(*PAUSED_SECONDS), stopping)
            await self.set_state(hook, "enabled")
        elif fate < 0.35:
            await self._rotate(hook, webhook_id)
        elif fate < 0.5:
            await self.replay_failed(hook)
        elif fate < 0.6:
            told = await self._write(requests.delete_hook(self.key(), webhook_id))
            if told.outcome is Outcome.DONE:
                hook.is_deleted = True
                hook.pauses.append(Pause(told.ended))
            return told.outcome is Outcome.DONE
        return False

    async def _create(self, place: int) -> Hook:
        types, signing = WANTED[place]
        name = f"/{self.name.replace(' ', '-')}-{next(self._numbers)}"
        hook = Hook(name, self.tenant_id, types)
        self._history.accounts.hooks.append(hook)

        def note(made: Webhook) -> None:
            if hook.webhook_id is None:
                hook.webhook_id = made.id
                hook.enable(made.position, 0.0)
                hook.keys.append(SigningKey(_newest_key(made), 0.0))

        await self._write(requests.create_hook(self.key(), self._receiver.url(name), types, signing, note))
        return hook

    async def _rotate(self, hook: Hook, webhook_id: UUID) -> None:
        overlap = self._chance.choice(OVERLAPS_SECONDS)
        asked = time.monotonic()
        seen: list[str] = []

        def note(rotated: Webhook) -> None:
            if not seen:
                seen.append(_newest_key(rotated))
                for older in hook.keys:
                    older.until_asked = min(older.until_asked, asked + overlap)
                hook.keys.append(SigningKey(seen[0], time.monotonic()))

        told = await self._write(requests.rotate_hook(self.key(), webhook_id, overlap, note))
        if told.outcome not in (Outcome.DONE, Outcome.REFUSED):
            hook.has_other_keys = True

    async def set_state(self, hook: Hook, state: Literal["enabled", "disabled"]) -> None:
        """Enable or disable a webhook."""
        assert hook.webhook_id is not None, "the webhook was created"
        asked = time.monotonic()

        def note(changed: Webhook) -> None:
            if state == "disabled":
                hook.disable(changed.position, time.monotonic())
            else:
                hook.enable(changed.position, asked)

        await self._write(requests.set_hook_state(self.key(), hook.webhook_id, state, note))

    async def _write(self, write: Write) -> Attempt:
        """Write; a fifth of the time the same twice at once."""
        if self._chance.random() < DUPLICATED_SHARE:
            first, _ = await asyncio.gather(self._writer.write(write), self._writer.write(write))
            return first
        return await self._writer.write(write)


def _newest_key(webhook: Webhook) -> str:
    """The secret, or the newest public key."""
    return webhook.secret or webhook.public_keys[0]
