"""Reads the log in PostgreSQL as the source of a consumer, without NATS; it contains no stubs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import structlog

from berth.client import Event, LogTruncated
from berth.client.feed.events import event_of_feed
from orchestrator.billing.queries import find_trusted_head
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import TransactionConflict
from orchestrator.log.queries import read_feed
from orchestrator.log.store.feed import ALL
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem

log = structlog.get_logger()

RETRY_SECONDS = 1.0


class LogSource:
    """Every event of the log, in batches of at most a thousand; polls every `tick_seconds`."""

    def __init__(self, context: Context, tick_seconds: float) -> None:
        self._context = context
        self._tick_seconds = tick_seconds

    async def event_lists(self, after: int) -> AsyncGenerator[list[Event], None]:
        """Implements `berth.client.consumer.Source`. Waits until the PostgreSQL timeline is accepted after a failover."""
        while True:
            try:
                events = await self._read(after)
            except (Problem, TransactionConflict) as error:
                log.warning("metering_read_failed", why=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if events:
                yield events
                # The consumer commits a batch before it asks for the next.
                reach(CrashPoint.METERING_AFTER_COMMIT)
                after = events[-1].version
            else:
                await asyncio.sleep(self._tick_seconds)

    async def _read(self, after: int) -> list[Event]:
        head = await find_trusted_head(self._context)
        if head is None or head <= after:
            return []
        scan = await read_feed(self._context.database, after, head, None, ALL)
        if scan.first > after + 1:
            raise LogTruncated(
                f"the log begins at version {scan.first}, and version {after + 1} was not metered",
                code="log_truncated",
                extra={"first_version": scan.first},
            )
        return [event_of_feed(f'{{"version":{e.version},"prev_version":{e.before}{e.rest}') for e in scan.events]
