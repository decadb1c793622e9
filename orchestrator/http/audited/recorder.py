"""Writes audit rows of requests that no operation records, in batches and outside the requests.

A request only appends to a bounded queue in memory, so a refusal costs no transaction and needs no database. A process that
is killed loses the rows of at most `FLUSH_SECONDS` and the counts of at most two minutes, or all that waits while the database
cannot be reached; a process that is stopped writes them first. A batch is stored at most once: it is numbered, and repeated with
its number until its outcome is known.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

import structlog

from berth.process.json_objects import JsonObject
from orchestrator.audit.store import forget_recorders, record_requests
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import Database, TransactionConflict
from orchestrator.http.audited.refusal_counts import RefusalCounts
from orchestrator.http.audited.strangers import StrangerCounts
from orchestrator.http.metrics import AUDIT_LOST
from orchestrator.problems import Problem

QUEUE_MAX: Final = 10_000
BATCH_MAX: Final = 500
FLUSH_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 1.0
COUNTS_SECONDS: Final = 60.0
STOP_SECONDS: Final = 5.0

log = structlog.get_logger("orchestrator.api")


class RequestRecorder:
    """The queue, and the task that writes it.

    `database` serves no requests, so its losses say nothing to the gate; the recorder closes it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._id = uuid4()
        self._rows: deque[JsonObject] = deque()
        self._batch_rows: list[JsonObject] = []
        self._batch_number = 0
        self._strangers = StrangerCounts()
        self._refusals = RefusalCounts()
        self._writing = asyncio.Lock()
        self._some = asyncio.Event()
        self._batch = asyncio.Event()
        self._stopped = asyncio.Event()

    def record(self, row: JsonObject) -> None:
        """Queue a row (see `record_requests`); beyond `QUEUE_MAX` it is lost, and counted as lost."""
        if len(self._rows) >= QUEUE_MAX:
            AUDIT_LOST.inc()
            return
        self._rows.append(row)
        self._some.set()
        if len(self._rows) >= BATCH_MAX:
            self._batch.set()

    def record_refusal(self, row: JsonObject) -> None:
        """Queue the row of a refusal; those of one caller beyond a bound each minute are counted instead, and end as one row."""
        if self._refusals.admit(row, datetime.now(UTC)):
            self.record(row)

    def count_stranger(self, source: str | None) -> None:
        """Count a refusal of a caller without a valid credential."""
        self._strangers.note(source, datetime.now(UTC))

    async def flush(self) -> None:
        """Write every queued row. Raises a `Problem` or `TransactionConflict`; the rows then wait for the next call."""
        async with self._writing:
            while self._waiting:
                if not self._batch_rows:
                    self._batch_rows = [self._rows.popleft() for _ in range(min(BATCH_MAX, len(self._rows)))]
                    self._batch_number += 1
                try:
                    await self._write()
                except (Problem, TransactionConflict):
                    raise
                except Exception as error:
                    # No later attempt would succeed, and the rows behind must not wait for it.
                    AUDIT_LOST.inc(len(self._batch_rows))
                    log.error("audit_lost", rows=len(self._batch_rows), exc_info=error)
                # After any other failure, cancellation included, the batch may be stored: the next call repeats it as it is.
                self._batch_rows = []

    @property
    def _waiting(self) -> int:
        return len(self._rows) + len(self._batch_rows)

    async def _write(self) -> None:
        async with self._database.transaction() as tx:
            if self._batch_number == 1:
                await forget_recorders(tx)
            await record_requests(tx, self._batch_rows, self._id, self._batch_number)
            reach(CrashPoint.RECORD_REQUESTS_BEFORE_COMMIT)
        reach(CrashPoint.RECORD_REQUESTS_AFTER_COMMIT)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write while the block lasts; then write what is left, for at most `STOP_SECONDS`, and close the database."""
        tasks = [asyncio.create_task(self._serve()), asyncio.create_task(self._serve_counts())]
        for task in tasks:
            task.add_done_callback(_died)
        try:
            yield
        finally:
            self._stopped.set()
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._write_the_rest()
            await self._database.close()

    async def _serve(self) -> None:
        while not self._stopped.is_set():
            await _first_of(self._some, self._stopped)
            await _first_of(self._batch, self._stopped, seconds=FLUSH_SECONDS)
            self._some.clear()
            self._batch.clear()
            try:
                await self.flush()
            except (Problem, TransactionConflict) as error:
                log.warning("audit_waits", rows=self._waiting, why=str(error))
                self._some.set()
                await _first_of(self._stopped, seconds=RETRY_SECONDS)

    async def _serve_counts(self) -> None:
        while not self._stopped.is_set():
            await _first_of(self._stopped, seconds=COUNTS_SECONDS)
            self._queue_counts(everything=self._stopped.is_set())

    def _queue_counts(self, *, everything: bool) -> None:
        now = datetime.now(UTC)
        for row in [
            *self._strangers.take(now, everything=everything),
            *self._refusals.take(now, everything=everything),
        ]:
            self.record(row)

    async def _write_the_rest(self) -> None:
        self._queue_counts(everything=True)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.flush()
        except (Problem, TransactionConflict, TimeoutError) as error:
            AUDIT_LOST.inc(self._waiting)
            log.error("audit_lost", rows=self._waiting, exc_info=error)


async def _first_of(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Return when one of the events is set, or after so many seconds."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _died(task: asyncio.Task[None]) -> None:
    """End the process: without this task, what it serves would go unrecorded."""
    if not task.cancelled() and task.exception() is not None:
        log.critical("audit rows are no longer written; ending the process", exc_info=task.exception())
        raise SystemExit(1)
