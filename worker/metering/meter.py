"""Meters allocations: an interval opens when an allocation becomes active and closes when it leaves that state.

It closes at `releasing_at`, or at `failed_at` if the allocation fails while active. An interval closes once: a retried
release bills nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal
from uuid import UUID

import psycopg
import structlog

from berth.client import BerthError, Event
from berth.client.consumer import Consumer, Source
from berth.process.json_objects import JsonMapping
from orchestrator.allocations.health import OutageCause
from orchestrator.billing.store.metering import CONSUMER, POSITIONS_TABLE, Closing, Credit, Opening, credit, meter
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.log.events import EventType
from worker.metrics import LEDGER_LINES, METERING_POSITION, METERING_STOPPED

log = structlog.get_logger()

ENDS = {
    EventType.RELEASING_REQUESTED.value: "releasing_at",
    EventType.PROVISIONING_FAILED.value: "failed_at",
}
"""The events that close an interval, with the field that contains the time."""
OUTAGE_ENDS = {
    EventType.ALLOCATION_RECOVERED.value: ("since", "recovered_at", "cause", "lost_at"),
    EventType.RELEASING_REQUESTED.value: ("outage_since", "releasing_at", "outage_cause", "outage_lost_at"),
}
"""The events that end an outage, with the fields that contain when it was noticed, when it ended, its cause, and when it
became `lost`."""
EVENT_TYPES = frozenset({EventType.PROVISIONING_ACTIVE.value, *ENDS, *OUTAGE_ENDS})
CreditRule = Literal["last_proof_of_life", "noticed", "none"]
RETRY_SECONDS = 10.0

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]


async def write_down(
    transaction: psycopg.AsyncConnection[Any], events: Sequence[Event], rule: CreditRule = "last_proof_of_life"
) -> None:
    """Write the ledger lines of these events in the consumer's transaction."""
    openings = [_opening(event) for event in events if event.event_type == EventType.PROVISIONING_ACTIVE]
    closings = [
        Closing(UUID(event.data["allocation_id"]), event.data[ENDS[event.event_type]], event.version)
        for event in events
        if event.event_type in ENDS and event.data[ENDS[event.event_type]] is not None
    ]
    written = await meter(transaction, openings, closings)
    written += await credit(
        transaction,
        [due for event in events if (due := credit_of(event.event_type, event.data, event.version, rule)) is not None],
    )
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


def credit_of(event_type: str, data: JsonMapping, version: int, rule: CreditRule) -> Credit | None:
    """The credit for the outage that the event ends, by the operator's rule; None if it ends none.

    Of a guest that ended and is lost, only the time until then: its tenant may have ended it, and can start it or release it.
    Nothing of a guest that ran and did not answer: its tenant may have closed the port.
    """
    if event_type not in OUTAGE_ENDS or rule == "none":
        return None
    noticed_field, end_field, cause_field, lost_field = OUTAGE_ENDS[event_type]
    starts_at = data.get("last_proof_of_life_at" if rule == "last_proof_of_life" else noticed_field)
    if starts_at is None or data[cause_field] == OutageCause.GUEST_UNREACHABLE:
        return None
    is_with_tenant = data[cause_field] == OutageCause.GUEST_DOWN and data[lost_field] is not None
    ends_at = data[lost_field] if is_with_tenant else data[end_field]
    return Credit(UUID(data["allocation_id"]), starts_at, ends_at, version)


def make_consumer(
    source: Source, connect: Connect, batch_max: int, rule: CreditRule = "last_proof_of_life"
) -> Consumer:
    """The metering consumer; its position is stored in the control plane's own table of consumers."""
    return Consumer(
        CONSUMER,
        source,
        connect,
        partial(write_down, rule=rule),
        event_types=EVENT_TYPES,
        batch_max=batch_max,
        positions_table=POSITIONS_TABLE,
    )


async def meter_for_ever(
    source: Source, connect: Connect, batch_max: int, rule: CreditRule, retry_seconds: float = RETRY_SECONDS
) -> None:
    """Meter until cancelled. On a known error log it, skip nothing, and retry after `retry_seconds`."""
    while True:
        try:
            METERING_STOPPED.set(0)
            await make_consumer(source, connect, batch_max, rule).run()
        except (BerthError, psycopg.errors.RaiseException) as error:
            METERING_STOPPED.set(1)
            log.error("metering_stopped", why=str(error), error=type(error).__name__)
        await asyncio.sleep(retry_seconds)
