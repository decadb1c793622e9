"""Progress: best effort, in order within a task, never in the way of the task itself.

A phase that cannot be sent is given up and counted; the result, which is what counts, is sent by `reporter`.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

import structlog

from node_agent.connection import CredentialsRefused, NodeConnection, RequestRefused, Unreachable
from node_agent.metrics import AgentMetrics
from node_agent.protocol import ProgressReport

log = structlog.get_logger("node_agent.progress")

QUEUED_PHASES_MAX = 32
FLUSH_SECONDS_MAX = 2.0
DETAIL_LETTERS_MAX = 500


class TaskProgress:
    """The phases of one running task, sent one after the other by a coroutine of its own."""

    def __init__(self, task_id: UUID, fence: int, connection: NodeConnection, metrics: AgentMetrics) -> None:
        self._task_id = task_id
        self._fence = fence
        self._connection = connection
        self._metrics = metrics
        self._queue: asyncio.Queue[ProgressReport | None] = asyncio.Queue(QUEUED_PHASES_MAX)
        self._sender: asyncio.Task[None] | None = None

    def offer(self, phase: str, detail: str) -> None:
        """Send a completed phase when possible. Never blocks, never raises."""
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        try:
            self._queue.put_nowait(ProgressReport(fence=self._fence, phase=phase, detail=detail[:DETAIL_LETTERS_MAX]))
        except asyncio.QueueFull:
            self._metrics.progress_lost.inc()

    async def finish(self) -> None:
        """Return when all phases are sent or given up, after two seconds at most, so that they precede the result."""
        if self._sender is None:
            return
        try:
            async with asyncio.timeout(FLUSH_SECONDS_MAX):
                await self._queue.put(None)
                await self._sender
        except TimeoutError:
            self._metrics.progress_lost.inc(self._queue.qsize())
        finally:
            self._sender.cancel()

    async def _send_all(self) -> None:
        while (report := await self._queue.get()) is not None:
            try:
                await self._connection.send(f"/node/v1/tasks/{self._task_id}/progress", report)
            except (Unreachable, CredentialsRefused, RequestRefused) as error:
                self._metrics.progress_lost.inc()
                log.info("progress_lost", task_id=str(self._task_id), phase=report.phase, why=str(error))
