"""Meters allocations: an interval opens when an allocation becomes active and closes when it leaves that state.

It closes at `releasing_at`, or at `failed_at` if the allocation fails while active. An interval closes once: a retried
release bills nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import psycopg
import structlog

from berth.client import BerthError, Event
from berth.client.consumer import Consumer, Source
from orchestrator.billing.store.metering import CONSUMER, POSITIONS_TABLE, Closing, Opening, meter
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.log.events import EventType
from worker.metrics import LEDGER_LINES, METERING_POSITION, METERING_STOPPED

log = structlog.get_logger()

ENDS = {
    EventType.RELEASING_REQUESTED.value: "releasing_at",
    EventType.PROVISIONING_FAILED.value: "failed_at",
}
"""The events that close an interval, with the field that contains the time."""
EVENT_TYPES = frozenset({EventType.PROVISIONING_ACTIVE.value, *ENDS})
RETRY_SECONDS = 10.0

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]


async def write_down(transaction: psycopg.AsyncConnection[Any], events: Sequence[Event]) -> None:
    """Write the ledger lines of these events in the consumer's transaction."""
    openings = [_opening(event) for event in events if event.event_type == EventType.PROVISIONING_ACTIVE]
    closings = [
        Closing(UUID(event.data["allocation_id"]), event.data[ENDS[event.event_type]], event.version)
        for event in events
        if event.event_type in ENDS and event.data[ENDS[event.event_type]] is not None
    ]
    written = await meter(transaction, openings, closings)
    LEDGER_LINES.inc(written)
    METERING_POSITION.set(events[-1].version)
    reach(CrashPoint.METERING_BEFORE_COMMIT)


def _opening(event: Event) -> Opening:
    assert event.tenant_id is not None, "an allocation has a tenant"
    data = event.data
    return Opening(
        UUID(data["allocation_id"]), event.tenant_id, data["sku"], data["gpus"], data["price_version"],
        data["active_at"], event.version,
    )  # fmt: skip


def make_consumer(source: Source, connect: Connect, batch_max: int) -> Consumer:
    """The metering consumer; its position is stored in the control plane's own table of consumers."""
    return Consumer(
        CONSUMER,
        source,
        connect,
        write_down,
        event_types=EVENT_TYPES,
        batch_max=batch_max,
        positions_table=POSITIONS_TABLE,
    )


async def meter_for_ever(
    source: Source, connect: Connect, batch_max: int, retry_seconds: float = RETRY_SECONDS
) -> None:
    """Meter until cancelled. On a known error log it, skip nothing, and retry after `retry_seconds`."""
    while True:
        try:
            METERING_STOPPED.set(0)
            await make_consumer(source, connect, batch_max).run()
        except (BerthError, psycopg.errors.RaiseException) as error:
            METERING_STOPPED.set(1)
            log.error("metering_stopped", why=str(error), error=type(error).__name__)
        await asyncio.sleep(retry_seconds)
