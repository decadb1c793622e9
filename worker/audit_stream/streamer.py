"""Sends the chain of the audit to one target, in order, from its saved position on.

One process at a time sends to a target: it has the lease of the stream. The position advances after the target has
acknowledged rows, so a row is sent at least once. Nothing waits for this but the deletion of archived rows.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from dataclasses import dataclass, field

import structlog

from berth.process.backoff import Backoff
from orchestrator.audit.commands import lease_audit_stream, note_audit_failure, return_audit_stream, save_audit_position
from orchestrator.audit.list_store import Entry
from orchestrator.audit.queries import read_backlog, read_chain
from orchestrator.audit.stream_store import Holder
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from worker.audit_stream.metrics import BACKLOG_ROWS, BACKLOG_SECONDS, FAILURES, POSITION, SENDING, SENT
from worker.audit_stream.targets import Connection, Target, TargetUnavailable

FIRST_PAUSE_SECONDS = 0.2

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pace:
    """Rows of a batch, and durations in seconds. `timeout_seconds` bounds the sending of a batch; the lease is longer."""

    batch_max: int
    tick_seconds: float
    timeout_seconds: float
    backoff_seconds_max: float

    @property
    def lease_seconds(self) -> float:
        """Longer than it may take to connect or to send a batch, and to save the position."""
        return 2 * self.timeout_seconds + 2.0


@dataclass(slots=True)
class _Progress:
    """`saved` is in PostgreSQL, `sent` was acknowledged; `marks`: when which row was acknowledged."""

    saved: int
    sent: int
    marks: deque[tuple[float, int]] = field(default_factory=deque)

    def settled(self, now: float, seconds: float) -> int:
        """The newest row that was acknowledged so long ago."""
        reached = self.saved
        while self.marks and now - self.marks[0][0] >= seconds:
            reached = self.marks.popleft()[1]
        return reached


class Streamer:
    """Any number of processes may run one for a target; the others wait for the lease."""

    def __init__(self, context: Context, target: Target, pace: Pace) -> None:
        self._context = context
        self._target = target
        self._pace = pace
        self._holder = Holder(target.name, uuid.uuid4(), pace.lease_seconds)
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, pace.backoff_seconds_max)
        self._failing = ""
        self._renew_at = 0.0

    async def run(self) -> None:
        """Run until cancelled; failures of the target and of the database are retried."""
        SENDING.labels(self._target.name).set(0)
        try:
            while True:
                await asyncio.sleep(await self._turn())
        finally:
            await self._return_lease()

    async def _turn(self) -> float:
        """Send until the lease, the target or the database is lost; return the pause before the next turn."""
        connection: Connection | None = None
        try:
            position = await lease_audit_stream(self._context, self._holder)
            await self._measure()
            if position is None:
                return self._pace.tick_seconds
            self._note_lease()
            connection = await self._target.connect()
            SENDING.labels(self._target.name).set(1)
            await self._send_from(connection, position)
            return 0.0
        except TargetUnavailable as failure:
            await self._note_failure(failure)
        except Problem as trouble:
            log.warning("audit_stream_database_failed", target=self._target.name, why=str(trouble))
        finally:
            SENDING.labels(self._target.name).set(0)
            if connection is not None:
                await connection.close()
        return self._backoff.next_seconds()

    async def _send_from(self, connection: Connection, position: int) -> None:
        """Send what follows the position, until another process has the lease."""
        progress = _Progress(position, position)
        while True:
            if time.monotonic() >= self._renew_at and not await self._renew():
                return
            rows = await read_chain(self._context.database, progress.sent, self._pace.batch_max)
            if rows:
                await self._send(connection, progress, rows)
            else:
                await connection.require_open()
            if not await self._save(progress):
                return
            if len(rows) < self._pace.batch_max:
                await self._measure()
                await asyncio.sleep(self._pace.tick_seconds)

    async def _send(self, connection: Connection, progress: _Progress, rows: list[Entry]) -> None:
        if [row.sequence for row in rows] != list(range(progress.sent + 1, progress.sent + 1 + len(rows))):
            raise TargetUnavailable(
                "gap",
                f"rows of the chain are missing behind {progress.sent}; run `berth audit verify`, nothing more is sent",
            )
        reach(CrashPoint.AUDIT_STREAM_BEFORE_SEND)
        try:
            async with asyncio.timeout(self._pace.timeout_seconds):
                await connection.send(rows)
        except TimeoutError as error:
            seconds = self._pace.timeout_seconds
            raise TargetUnavailable("timeout", f"the target acknowledged no batch within {seconds:g} s") from error
        reach(CrashPoint.AUDIT_STREAM_AFTER_SEND)
        SENT.labels(self._target.name).inc(len(rows))
        progress.sent = rows[-1].sequence
        progress.marks.append((time.monotonic(), progress.sent))

    async def _save(self, progress: _Progress) -> bool:
        """Save what has settled; False if another process has the lease."""
        reached = progress.settled(time.monotonic(), self._target.settle_seconds)
        if reached == progress.saved:
            return True
        if not await save_audit_position(self._context, self._holder, progress.saved, reached):
            return False
        reach(CrashPoint.AUDIT_STREAM_AFTER_SAVED)
        progress.saved = reached
        self._note_lease()
        self._note_recovery(reached)
        return True

    async def _renew(self) -> bool:
        renewed = await lease_audit_stream(self._context, self._holder) is not None
        if renewed:
            self._note_lease()
        return renewed

    def _note_lease(self) -> None:
        self._renew_at = time.monotonic() + self._pace.timeout_seconds / 2

    async def _measure(self) -> None:
        backlog = await read_backlog(self._context.database, self._target.name)
        if backlog is not None:
            POSITION.labels(self._target.name).set(backlog.sequence)
            BACKLOG_ROWS.labels(self._target.name).set(backlog.rows)
            BACKLOG_SECONDS.labels(self._target.name).set(backlog.oldest_seconds)

    async def _note_failure(self, failure: TargetUnavailable) -> None:
        FAILURES.labels(self._target.name, failure.reason).inc()
        if failure.why != self._failing:
            self._failing = failure.why
            log.warning("audit_stream_failed", target=self._target.name, reason=failure.reason, why=failure.why)
        try:
            await note_audit_failure(self._context, self._holder, failure.why)
        except Problem as trouble:
            log.warning("audit_stream_database_failed", target=self._target.name, why=str(trouble))

    def _note_recovery(self, position: int) -> None:
        self._backoff.reset()
        if self._failing:
            self._failing = ""
            log.info("audit_stream_recovered", target=self._target.name, position=position)

    async def _return_lease(self) -> None:
        try:
            await return_audit_stream(self._context, self._holder)
        except Problem as trouble:
            log.warning("audit_stream_database_failed", target=self._target.name, why=str(trouble))
