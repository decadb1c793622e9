"""The webhook dispatcher: enqueues deliveries for new events, sends due ones, and records each attempt.

No transaction is open while a delivery is sent. A slow endpoint occupies at most its own share of the attempts.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from uuid import UUID

import structlog

from orchestrator.operations.execution import Context, json_value
from orchestrator.problems import Problem
from orchestrator.webhooks.commands.dispatch import enqueue_deliveries, lease_deliveries, record_attempt
from orchestrator.webhooks.keys import WebhookKeys, WebhookKeyUnreadable
from orchestrator.webhooks.queries import find_work
from orchestrator.webhooks.rules import Attempt, document_of_test, pause_seconds
from orchestrator.webhooks.store.dispatch import InFlight, LeasedDelivery, document_of
from worker.webhooks.metrics import (
    WEBHOOK_ATTEMPT_SECONDS,
    WEBHOOK_ATTEMPTS,
    WEBHOOK_ATTEMPTS_UNDER_WAY,
    WEBHOOKS_DISABLED,
    WEBHOOKS_STOPPED,
)
from worker.webhooks.sending import Message, Sender

log = structlog.get_logger()

BATCH = 500
"""Most events that one transaction reads for a webhook."""
WEBHOOKS_MAX = 200
"""Most webhooks that one transaction advances."""
LEASE_SECONDS = 40.0
"""Added to an attempt's timeout: how long recording its outcome may take."""
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the dispatcher in one process. Durations are seconds."""

    tick_seconds: float
    timeout_seconds: float
    attempts_max: int
    tenant_attempts_max: int
    endpoint_attempts_max: int
    pending_max: int
    failing_seconds_max: float


class Dispatcher:
    """Any number of processes may run one: positions advance under a lock, and each due delivery is leased."""

    def __init__(self, context: Context, keys: WebhookKeys, sender: Sender, bounds: Bounds) -> None:
        self._context = context
        self._keys = keys
        self._sender = sender
        self._bounds = bounds
        self._busy: Counter[tuple[UUID, UUID | None]] = Counter()
        self._attempts: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Run until cancelled. Retries while the database is unavailable; raises any other error."""
        try:
            while True:
                try:
                    unfinished = await self.round()
                    WEBHOOKS_STOPPED.set(0)
                except Problem as trouble:
                    WEBHOOKS_STOPPED.set(1)
                    log.warning("webhook_dispatch_failed", why=str(trouble))
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if not unfinished:
                    await self._pause()
        finally:
            await self._cancel_attempts()

    async def round(self) -> bool:
        """Enqueue new deliveries and start due ones. True if more can be enqueued at once.

        Raises the unexpected error of an earlier attempt.
        """
        if self._failure is not None:
            raise self._failure
        work = await find_work(self._context.database)
        unfinished = await self._enqueue() if work.behind else False
        if work.due or work.behind:
            await self._begin_due()
        return unfinished

    async def _enqueue(self) -> bool:
        advanced = await enqueue_deliveries(
            self._context, batch=BATCH, pending_max=self._bounds.pending_max, webhooks_max=WEBHOOKS_MAX
        )
        return advanced.unfinished > 0 or advanced.moved == WEBHOOKS_MAX

    async def _begin_due(self) -> None:
        bounds = self._bounds
        free = bounds.attempts_max - len(self._attempts)
        if free <= 0:
            return
        in_flight = [InFlight(webhook_id, tenant_id, number) for (webhook_id, tenant_id), number in self._busy.items()]
        leased = await lease_deliveries(
            self._context,
            in_flight,
            limit=free,
            webhook_max=bounds.endpoint_attempts_max,
            tenant_max=bounds.tenant_attempts_max,
            lease_seconds=bounds.timeout_seconds + LEASE_SECONDS,
        )
        for delivery in leased:
            self._begin(delivery)

    async def drain(self) -> None:
        """Return when every started attempt has ended."""
        while self._attempts:
            await asyncio.wait(set(self._attempts))

    def _begin(self, delivery: LeasedDelivery) -> None:
        place = (delivery.webhook_id, delivery.tenant_id)
        self._busy[place] += 1
        task = asyncio.create_task(self._deliver(delivery), name="webhook attempt")
        self._attempts.add(task)
        WEBHOOK_ATTEMPTS_UNDER_WAY.set(len(self._attempts))

        def note_end(ended: asyncio.Task[None]) -> None:
            self._attempts.discard(ended)
            WEBHOOK_ATTEMPTS_UNDER_WAY.set(len(self._attempts))
            self._busy[place] -= 1
            if self._busy[place] == 0:
                del self._busy[place]
            if not ended.cancelled() and ended.exception() is not None:
                self._failure = ended.exception()
            self._ended.set()

        task.add_done_callback(note_end)

    async def _pause(self) -> None:
        """Wait one tick, or until an attempt ends and frees its slot."""
        self._ended.clear()
        try:
            async with asyncio.timeout(self._bounds.tick_seconds):
                await self._ended.wait()
        except TimeoutError:
            pass

    async def _cancel_attempts(self) -> None:
        """Cancel running attempts; their leases expire and they are sent again."""
        for task in self._attempts:
            task.cancel()
        if self._attempts:
            await asyncio.wait(set(self._attempts), timeout=RETRY_SECONDS)

    async def _deliver(self, delivery: LeasedDelivery) -> None:
        attempt = await self._attempt(delivery)
        outcome = "succeeded" if attempt.succeeded else attempt.error or f"status_{attempt.response_status}"
        WEBHOOK_ATTEMPTS.labels("succeeded" if attempt.succeeded else "failed").inc()
        WEBHOOK_ATTEMPT_SECONDS.observe(attempt.duration_ms / 1000)
        logger = log.bind(
            webhook_id=str(delivery.webhook_id), number=delivery.number, event_id=str(delivery.event_id),
            attempt=delivery.attempts,
        )  # fmt: skip
        logger.info("webhook_attempted", outcome=outcome, duration_ms=attempt.duration_ms)
        pause = pause_seconds(delivery.attempts, attempt.retry_after_seconds, random.random())
        if attempt.error == "event_truncated":
            pause = None
        try:
            disabled = await record_attempt(
                self._context,
                delivery,
                attempt,
                pause_seconds=pause,
                failing_seconds_max=self._bounds.failing_seconds_max,
            )
        except Problem as trouble:  # the lease expires and the delivery is sent again
            logger.warning("webhook_attempt_not_recorded", why=str(trouble))
            return
        if disabled is not None:
            WEBHOOKS_DISABLED.labels(disabled).inc()
            logger.warning("webhook_disabled", reason=disabled)

    async def _attempt(self, delivery: LeasedDelivery) -> Attempt:
        body = document_of(
            delivery,
            document_of_test(str(delivery.event_id), json_value(delivery.created_at), str(delivery.webhook_id)),
        )
        if body is None:
            return Attempt(0, error="event_truncated")
        if not delivery.keys:
            return Attempt(0, error="webhook_deleted")
        keys = self._readable_keys(delivery)
        if not keys:
            return Attempt(0, error="key_unreadable")
        return await self._sender.send(delivery.url, Message(str(delivery.event_id), body, keys, delivery.attempted_at))

    def _readable_keys(self, delivery: LeasedDelivery) -> list[str]:
        """The usable signing keys; a key that no webhook key opens is left out."""
        keys = []
        for key in delivery.keys:
            try:
                keys.append(self._keys.open(delivery.webhook_id, key["sealed"]))
            except WebhookKeyUnreadable:
                continue
        return keys
