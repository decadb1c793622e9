"""Scenes with a webhook sender and a receiver in this process. Each is the shortest way to where one bug shows."""

from __future__ import annotations

import json
import os
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from orchestrator.operations.execution import Context
from orchestrator.operations.sealing import Sealer
from orchestrator.tenants.principals import Principal
from orchestrator.webhooks.commands.dispatch import enqueue_deliveries
from orchestrator.webhooks.commands.webhooks import create_webhook, delete_webhook, rotate_webhook
from orchestrator.webhooks.keys import WebhookKeys
from orchestrator.webhooks.queries import find_webhook, list_deliveries
from orchestrator.webhooks.signatures import Signing
from tests.allocations.driving import operation
from tests.allocations.seeding import Seeded, add_tenant, connect, create_allocation
from tests.campaign.accounts import Hook, HookDelivery, Pause, SigningKey
from tests.campaign.clients.accounts.receiving import Behave, HookReceiver
from tests.campaign.directed.scene import Scene
from worker.webhooks.destinations import Resolver
from worker.webhooks.dispatching import Bounds, Dispatcher
from worker.webhooks.sending import Sender

BOUNDS = Bounds(
    tick_seconds=0.05, timeout_seconds=5.0, attempts_max=16, tenant_attempts_max=16, endpoint_attempts_max=4, pending_max=50,
    failing_seconds_max=1_000.0,
)  # fmt: skip
OVERLAP_SECONDS = 60.0


def an_endpoint_that_refuses_first(scene: Scene) -> None:
    """The endpoint refuses a message and accepts its repetition."""
    seeded = scene.seed()

    async def play(stage: _WebhookStage) -> None:
        await stage.create(seeded)
        create_allocation(scene.url, seeded)
        await stage.deliver()
        await stage.deliver()

    _run(scene, play, lambda _, number: "accept" if number else "refuse")


def events_of_two_tenants(scene: Scene) -> None:
    """Two tenants have events, and one of them a webhook."""
    seeded = scene.seed()
    with connect(scene.url) as connection:
        other = add_tenant(connection, "other")
    other.pools, other.nodes = seeded.pools, seeded.nodes

    async def play(stage: _WebhookStage) -> None:
        await stage.create(seeded)
        for owner in (other, seeded):
            create_allocation(scene.url, owner)
        await stage.deliver()

    _run(scene, play)


def a_webhook_that_is_deleted(scene: Scene) -> None:
    """A webhook is deleted while a message of it waits."""
    seeded = scene.seed()

    async def play(stage: _WebhookStage) -> None:
        hook = await stage.create(seeded)
        create_allocation(scene.url, seeded)
        await stage.enqueue(batch=10)
        assert hook.webhook_id is not None, "the webhook was created"
        await delete_webhook(stage.context, operation(seeded), _owner(seeded), hook.webhook_id)
        hook.is_deleted = True
        hook.pauses.append(Pause(time.monotonic()))
        await stage.deliver()

    _run(scene, play)


def an_event_of_a_suspended_tenant(scene: Scene) -> None:
    """A tenant is suspended while an event of it waits, and goes on later."""
    seeded = scene.seed()

    async def play(stage: _WebhookStage) -> None:
        hook = await stage.create(seeded)
        create_allocation(scene.url, seeded)
        stage.set_tenant(seeded, "suspended")
        hook.pauses.append(Pause(time.monotonic()))
        await stage.deliver()
        hook.pauses[-1].ended_asked = time.monotonic()
        stage.set_tenant(seeded, "active")
        await stage.deliver()

    _run(scene, play)


def a_message_after_a_rotation(scene: Scene) -> None:
    """A webhook has a new key, and its older one signs as well for a while."""
    seeded = scene.seed()

    async def play(stage: _WebhookStage) -> None:
        hook = await stage.create(seeded)
        await stage.rotate(hook, seeded)
        create_allocation(scene.url, seeded)
        await stage.deliver()

    _run(scene, play)


def more_events_than_one_batch(scene: Scene) -> None:
    """A webhook is further behind the log than one transaction reads."""
    seeded = scene.seed()

    async def play(stage: _WebhookStage) -> None:
        await stage.create(seeded)
        for _ in range(5):
            create_allocation(scene.url, seeded)
        for _ in range(3):
            await stage.enqueue(batch=2)
        await stage.deliver()

    _run(scene, play)


@dataclass
class _WebhookStage:
    """What a scene does with webhooks."""

    scene: Scene
    context: Context
    keys: WebhookKeys
    receiver: HookReceiver
    sender: Sender

    async def create(self, seeded: Seeded) -> Hook:
        """A webhook of the tenant for every event."""
        self.scene.sequence()
        hook = Hook(f"/{uuid.uuid4().hex}", seeded.tenant_id)
        answer = await create_webhook(
            self.context, operation(seeded), _owner(seeded), _SEALER, self.keys, url=self.receiver.url(hook.name),
            description=None, types=(), signing=Signing.HMAC, versions_max=1_000, webhooks_max=5,
        )  # fmt: skip
        made = json.loads(answer.body)
        hook.webhook_id = uuid.UUID(made["id"])
        hook.enable(int(made["position"]), 0.0)
        hook.keys.append(SigningKey(_SEALER.open(made["secret"]), 0.0))
        self.scene.history.accounts.hooks.append(hook)
        return hook

    async def rotate(self, hook: Hook, seeded: Seeded) -> None:
        """A new key beside the older one."""
        assert hook.webhook_id is not None, "the webhook was created"
        answer = await rotate_webhook(
            self.context, operation(seeded), _owner(seeded), _SEALER, self.keys, hook.webhook_id,
            overlap_seconds=OVERLAP_SECONDS,
        )  # fmt: skip
        hook.keys[0].until_asked = time.monotonic() + OVERLAP_SECONDS
        hook.keys.append(SigningKey(_SEALER.open(json.loads(answer.body)["secret"]), time.monotonic()))

    def set_tenant(self, seeded: Seeded, state: str) -> None:
        """Suspend a tenant, or let it go on."""
        with connect(self.scene.url) as connection:
            connection.execute("update tenants set state = %s where id = %s", (state, seeded.tenant_id))

    async def enqueue(self, batch: int) -> None:
        """Give waiting events their versions, and one transaction's deliveries to the webhooks."""
        self.scene.sequence()
        await enqueue_deliveries(self.context, batch=batch, pending_max=BOUNDS.pending_max, webhooks_max=10)

    async def deliver(self) -> None:
        """Send what waits, as if every pause were over."""
        self.scene.sequence()
        with connect(self.scene.url) as connection:
            connection.execute(
                "update webhook_deliveries set next_attempt_at = clock_timestamp() where state = 'pending'"
            )
        dispatcher = Dispatcher(self.context, self.keys, self.sender, BOUNDS)
        for _ in range(2):
            await dispatcher.round()
            await dispatcher.drain()

    async def read(self) -> None:
        """Record what the API would list of each webhook."""
        for hook in self.scene.history.accounts.hooks:
            if hook.is_deleted or hook.webhook_id is None:
                continue
            database, owner = self.context.database, hook.tenant_id
            listed = await list_deliveries(database, owner, hook.webhook_id, state=None, before=2**62, limit=100)
            hook.position = (await find_webhook(database, owner, hook.webhook_id)).position
            hook.deliveries = [
                HookDelivery(
                    one.number, one.version, str(one.event_id), one.state, one.attempts, one.error, one.response_status
                )
                for one in listed
            ]


_SEALER = Sealer("the owner's key")


def _owner(seeded: Seeded) -> Principal:
    return Principal("member", uuid.uuid4(), seeded.tenant_id)


def _run(scene: Scene, play: Callable[[_WebhookStage], Awaitable[None]], behave: Behave = lambda *_: "accept") -> None:
    async def run(context: Context) -> None:
        async with _stage(scene, context, behave) as stage:
            await play(stage)
            await stage.read()

    # Nothing pauses the sender of a scene.
    scene.history.accounts.hook_grace_seconds = scene.history.accounts.hook_calm_seconds = 0.0
    scene.run(run)


@asynccontextmanager
async def _stage(scene: Scene, context: Context, behave: Behave) -> AsyncIterator[_WebhookStage]:
    resolver = Resolver(4)
    sender = Sender(
        resolver.resolve, timeout_seconds=BOUNDS.timeout_seconds, http_allowed=True, private_allowed=True, ports=(),
        tls=ssl.create_default_context(),
    )  # fmt: skip
    try:
        async with HookReceiver(scene.history, behave) as receiver:
            yield _WebhookStage(scene, context, WebhookKeys([os.urandom(32)]), receiver, sender)
    finally:
        resolver.close()
