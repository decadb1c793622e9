"""Progress: best effort, in order within a task, never in the way of the task itself.

A phase that cannot be sent is given up and counted; the result, which is what counts, is sent by `reporter`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from uuid import UUID

import structlog

from node_agent.connection import CredentialsRefused, NodeConnection, RequestRefused, Unreachable
from node_agent.metrics import AgentMetrics
from node_agent.protocol import PHASES_MAX, Phase, ProgressReport

log = structlog.get_logger("node_agent.progress")

QUEUED_PHASES_MAX = PHASES_MAX
GATHER_SECONDS = 0.05
FLUSH_SECONDS_MAX = 2.0
DETAIL_LETTERS_MAX = 500


class TaskProgress:
    """The phases of one running task, sent in order by a separate coroutine; phases that end close together share a request."""

    def __init__(self, task_id: UUID, fence: int, connection: NodeConnection, metrics: AgentMetrics) -> None:
        self._task_id = task_id
        self._fence = fence
        self._connection = connection
        self._metrics = metrics
        self._waiting: deque[tuple[float, str, str]] = deque()
        self._finishing = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    def offer(self, phase: str, detail: str) -> None:
        """Send a completed phase when possible. Never blocks, never raises."""
        if len(self._waiting) >= QUEUED_PHASES_MAX:
            self._metrics.progress_lost.inc()
            return
        self._waiting.append((time.monotonic(), phase, detail[:DETAIL_LETTERS_MAX]))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_waiting())

    async def finish(self) -> None:
        """Return when all phases are sent or given up, after two seconds at most, so that they precede the result."""
        self._finishing.set()
        if self._sender is None:
            return
        try:
            async with asyncio.timeout(FLUSH_SECONDS_MAX):
                await self._sender
        except TimeoutError:
            self._metrics.progress_lost.inc(len(self._waiting))
        finally:
            self._sender.cancel()

    async def _send_waiting(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER_SECONDS):
                    await self._finishing.wait()
            now = time.monotonic()
            phases = [Phase(phase=p, detail=d, seconds_ago=max(0.0, now - at)) for at, p, d in self._waiting]
            self._waiting.clear()
            try:
                report = ProgressReport(fence=self._fence, phases=phases)
                await self._connection.send(f"/node/v1/tasks/{self._task_id}/progress", report)
            except (Unreachable, CredentialsRefused, RequestRefused) as error:
                self._metrics.progress_lost.inc(len(phases))
                log.info("progress_lost", task_id=str(self._task_id), phases=len(phases), why=str(error))
