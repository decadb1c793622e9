"""Events that were delivered and wait for their turn: one line per tenant, taken round robin.

NATS delivers a stream in one order. Read ahead and shared out here, the events of a tenant with thousands of them delay
another tenant's by one turn. NATS bounds what waits (`UNACKNOWLEDGED_MAX`).
"""

from __future__ import annotations

import asyncio
import time

from nats.aio.msg import Msg

from berth.process.fair_queue import FairQueue
from worker.metrics import EVENTS_WAITING


def tenant_of(subject: str) -> str:
    """The tenant's part of an event's subject, `berth.events.<tenant>.<type>`; '' if the subject has none."""
    parts = subject.split(".", 3)
    return parts[2] if len(parts) > 3 else ""


class WaitingEvents:
    """Messages by tenant. Each is taken once, also if NATS delivers it again meanwhile."""

    def __init__(self) -> None:
        self._queue: FairQueue[Msg, str] = FairQueue(lambda message: tenant_of(message.subject))
        self._kept_since: dict[int, tuple[float, Msg]] = {}  # by version
        self._arrived = asyncio.Event()

    def add(self, message: Msg) -> None:
        """Queue a message behind those of its tenant, unless it waits already."""
        version = message.metadata.sequence.stream
        if version in self._kept_since:
            return
        self._kept_since[version] = (time.monotonic(), message)
        self._queue.append(message)
        self._count()

    async def take(self) -> Msg:
        """The next message: of the tenant whose turn is longest ago, its oldest. Waits while there is none."""
        while not len(self._queue):
            await self._arrived.wait()
        (message,) = self._queue.take(1)
        self._queue.done(message)
        del self._kept_since[message.metadata.sequence.stream]
        self._count()
        return message

    def kept_longer_than(self, seconds: float) -> list[Msg]:
        """The messages whose delivery, or whose last appearance here, is so long ago; they count as new from now on."""
        now = time.monotonic()
        kept = {version: one for version, (since, one) in self._kept_since.items() if now - since >= seconds}
        self._kept_since.update((version, (now, one)) for version, one in kept.items())
        return list(kept.values())

    def _count(self) -> None:
        EVENTS_WAITING.set(len(self._queue))
        if len(self._queue):
            self._arrived.set()
        else:
            self._arrived.clear()
