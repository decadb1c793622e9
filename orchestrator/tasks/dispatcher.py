"""Serves all waiting nodes of this process with one statement per tick (DESIGN §9).

A node that waits is a future; the loop leases tasks for all of them at once. A task whose waiter vanished meanwhile is not
lost: it stays dispatched, and the agent's next wait gets it again because it does not name it as journaled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import structlog

from orchestrator.database.transactions import TransactionConflict
from orchestrator.http.metrics import NODES_WAITING, TASK_WAIT_SECONDS, TASKS_DISPATCHED
from orchestrator.operations.execution import Context
from orchestrator.problems import Overloaded, Problem
from orchestrator.tasks.commands.lease import lease_tasks
from orchestrator.tasks.store.dispatch import Dispatched

log = structlog.get_logger("orchestrator.node")
RETRY_SECONDS = 0.5
WAITERS_MAX = 20_000


class Dispatcher:
    """Waiting nodes and the loop that serves them."""

    def __init__(self, context: Context, *, tick_seconds: float, batch_max: int) -> None:
        self._context = context
        self._tick_seconds = tick_seconds
        self._batch_max = batch_max
        self._waiters: dict[UUID, asyncio.Future[list[Dispatched]]] = {}
        self._serials: dict[UUID, str] = {}  # of the same nodes
        self._someone_waits = asyncio.Event()
        self._closed = False

    async def wait(self, node_id: UUID, serial: str, timeout_seconds: float) -> list[Dispatched]:
        """The node's next tasks, or none after the timeout. A second wait of the same node ends the first, empty."""
        if self._closed:
            return []
        if len(self._waiters) >= WAITERS_MAX:
            raise Overloaded("too many nodes wait at this process; try again")
        loop = asyncio.get_running_loop()
        self._end(node_id)
        answered: asyncio.Future[list[Dispatched]] = loop.create_future()
        self._waiters[node_id] = answered
        self._serials[node_id] = serial
        NODES_WAITING.set(len(self._waiters))
        self._someone_waits.set()
        timer = loop.call_later(timeout_seconds, self._expire, node_id, answered)
        try:
            return await answered
        finally:
            timer.cancel()
            self._expire(node_id, answered)
            NODES_WAITING.set(len(self._waiters))

    def _expire(self, node_id: UUID, answered: asyncio.Future[list[Dispatched]]) -> None:
        """End this wait empty; a later one of the same node goes on."""
        if self._waiters.get(node_id) is answered:
            self._end(node_id)

    @property
    def closed(self) -> bool:
        """Whether the process stops: nothing waits any more."""
        return self._closed

    def close(self) -> None:
        """End every wait with an empty answer, so that the listener can stop at once (TRAPS, TLS)."""
        self._closed = True
        for node_id in list(self._waiters):
            self._end(node_id)

    def _end(self, node_id: UUID, tasks: Sequence[Dispatched] = ()) -> None:
        waiter = self._waiters.pop(node_id, None)
        self._serials.pop(node_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(list(tasks))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the loop while the block lasts. If it dies the process ends with a message, never in silence."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._serve())
        task.add_done_callback(self._died)
        try:
            yield
        finally:
            self.close()
            task.cancel()

    def _died(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.critical("the dispatch loop died; ending the process", exc_info=task.exception())
            raise SystemExit(1)

    async def _serve(self) -> None:
        while not self._closed:
            if not self._waiters:
                self._someone_waits.clear()
                await self._someone_waits.wait()
            try:
                full = await self._tick()
            except (Problem, TransactionConflict) as error:
                log.warning("dispatch", why=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if not full:
                await asyncio.sleep(self._tick_seconds)

    async def _tick(self) -> bool:
        leased = await lease_tasks(self._context, self._serials, batch_max=self._batch_max)
        by_node: dict[UUID, list[Dispatched]] = {}
        for task in leased:
            by_node.setdefault(task.node_id, []).append(task)
            TASK_WAIT_SECONDS.observe(task.waited_seconds)
        for node_id, tasks in by_node.items():
            TASKS_DISPATCHED.labels("first").inc(len(tasks))
            self._end(node_id, tasks)
        NODES_WAITING.set(len(self._waiters))
        return len(leased) >= self._batch_max
