"""Combines creates that arrive together into one transaction (DESIGN §5): same answers, same isolation, fewer commits.

There is no waiting for company: a create that finds a free transaction slot goes at once, and those that arrive while all
slots are taken go together next. Two creates with one key are never in the same list; the second waits for the first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from uuid import UUID

import structlog

from orchestrator.api.metrics import CREATE_BATCH_SIZE, CREATE_OUTCOMES, CREATE_QUEUE
from orchestrator.catalogue_cache import CatalogueCache
from orchestrator.commands.create_allocations import create_allocations
from orchestrator.domain.errors import Overloaded, Problem
from orchestrator.execution import Context
from orchestrator.store.operations import Answer
from orchestrator.store.placing import Create

log = structlog.get_logger("orchestrator.api")


class CreateGatherer:
    """The queue between the create endpoint and its command. Bounded; beyond the bound creates are refused (P13)."""

    def __init__(
        self, context: Context, catalogue: CatalogueCache, *, batch_max: int, batches_in_flight_max: int, queue_max: int
    ) -> None:
        self._context = context
        self._catalogue = catalogue
        self._batch_max = batch_max
        self._batches_in_flight_max = batches_in_flight_max
        self._queue_max = queue_max
        self._queue: deque[tuple[Create, asyncio.Future[Answer]]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._keys_in_flight: set[tuple[UUID, str]] = set()

    async def create(self, create: Create) -> Answer:
        """The answer to one create. Raises the `Problem` that it met."""
        if len(self._queue) >= self._queue_max:
            raise Overloaded("too many creates are waiting; try again")
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append((create, answered))
        CREATE_QUEUE.set(len(self._queue))
        self._start()
        return await answered

    def _start(self) -> None:
        while self._queue and len(self._running) < self._batches_in_flight_max:
            batch = self._take()
            if not batch:
                return
            task = asyncio.create_task(self._run(batch))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _take(self) -> list[tuple[Create, asyncio.Future[Answer]]]:
        """The next creates in order of arrival, leaving back those whose key is under way."""
        taken: list[tuple[Create, asyncio.Future[Answer]]] = []
        left: list[tuple[Create, asyncio.Future[Answer]]] = []
        while self._queue and len(taken) < self._batch_max:
            create, answered = self._queue.popleft()
            key = (create.operation.scope, create.operation.key)
            if answered.done():
                continue
            if key in self._keys_in_flight:
                left.append((create, answered))
                continue
            self._keys_in_flight.add(key)
            taken.append((create, answered))
        self._queue.extendleft(reversed(left))
        CREATE_QUEUE.set(len(self._queue))
        return taken

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # What a command meets is answered; this is the queue itself, and its callers would wait for ever.
            log.critical("the queue of creates died; ending the process", exc_info=task.exception())
            raise SystemExit(1)
        self._start()

    async def _run(self, batch: list[tuple[Create, asyncio.Future[Answer]]]) -> None:
        creates = [create for create, _ in batch]
        CREATE_BATCH_SIZE.observe(len(creates))
        try:
            results = await create_allocations(self._context, self._catalogue, creates)
        except Problem as problem:
            results = [problem] * len(batch)
        except Exception as error:
            log.error("creates failed", count=len(batch), exc_info=error)
            results = [Problem("something failed that should not have; it has been logged")] * len(batch)
        for (create, answered), result in zip(batch, results, strict=True):
            self._keys_in_flight.discard((create.operation.scope, create.operation.key))
            if answered.done():
                continue
            if isinstance(result, Answer):
                CREATE_OUTCOMES.labels("replayed" if result.replayed else str(result.status)).inc()
                answered.set_result(result)
            else:
                CREATE_OUTCOMES.labels(result.code).inc()
                answered.set_exception(result)
