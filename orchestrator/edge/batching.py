"""Combines requests that arrive together into one transaction (DESIGN §5): same answers, same isolation, fewer commits.

Creates, holds, confirms and commits have one queue each. A request that finds a free transaction slot runs at once; requests
that arrive while all slots are taken form the next batch, and one that would be smaller than those that run waits a moment
for more. Two requests with one key are never in the same batch: the second
waits for the first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import structlog

from orchestrator.http.metrics import COMBINED, COMBINED_LIST_SIZE, COMBINING_QUEUE
from orchestrator.operations.execution import Deferred, Result
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import Overloaded, Problem, Unforeseen

log = structlog.get_logger("orchestrator.api")
GATHER_SECONDS = 0.002
"""How long a batch smaller than those that run waits for more items."""
TURN_SECONDS_MAX = 10.0
"""How long a deferred item waits for its turn."""


class Combinable(Protocol):
    """A request that can be an item of a batch."""

    @property
    def operation(self) -> Operation:
        """Its operation: scope and idempotency key."""
        ...


Item = TypeVar("Item", bound=Combinable)
Carry = Callable[[list[Item]], Awaitable[Sequence[Result | Deferred]]]
"""Executes a batch and returns one result per item, in input order; what it raises is the result of every item."""


@dataclass(slots=True, eq=False)
class _Waiting(Generic[Item]):
    """A request and the future of its answer; `came_back` once a batch deferred it, `task` where it runs alone."""

    item: Item
    answered: asyncio.Future[Answer]
    came_back: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def key(self) -> tuple[UUID, str]:
        """Scope and idempotency key."""
        return self.item.operation.scope, self.item.operation.key


class Batcher(Generic[Item]):
    """The queue between an endpoint and a command that takes a list.

    Bounded: beyond `queue_max` requests are refused, unless it is None, as it is for verbs that end something (P13).

    Deferred items run alone, a bounded number at once. An item that finds all turns taken waits until one of them ends, and
    then joins a batch once more: the first of many rivals has usually released what the others waited for.
    """

    def __init__(
        self, kind: str, carry: Carry[Item], *, batch_max: int, batches_in_flight_max: int, queue_max: int | None
    ) -> None:
        self._kind = kind
        self._carry = carry
        self._batch_max = batch_max
        self._batches_in_flight_max = batches_in_flight_max
        self._queue_max = queue_max
        self._queue: deque[_Waiting[Item]] = deque()
        self._back: list[_Waiting[Item]] = []
        self._running: dict[asyncio.Task[None], int] = {}
        self._moment: asyncio.TimerHandle | None = None
        self._moment_over = False
        self._alone: set[_Waiting[Item]] = set()
        self._turn = asyncio.Semaphore(batches_in_flight_max)
        self._keys_in_flight: set[tuple[UUID, str]] = set()
        self._waiting = COMBINING_QUEUE.labels(kind)
        self._sizes = COMBINED_LIST_SIZE.labels(kind)

    async def answer(self, item: Item) -> Answer:
        """Return the answer to one item. Raises the `Problem` that it met."""
        if self._queue_max is not None and len(self._queue) >= self._queue_max:
            raise Overloaded(
                f"{self._queue_max} {self._kind} are waiting in this process, the most allowed; retry later"
            )
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(item, answered))
        self._waiting.set(len(self._queue))
        self._start()
        return await answered

    def _start(self) -> None:
        while self._queue and len(self._running) < self._batches_in_flight_max:
            if self._gathers():
                return
            batch = self._take()
            if not batch:
                return
            task = asyncio.create_task(self._run(batch))
            self._running[task] = len(batch)
            task.add_done_callback(self._ended)

    def _gathers(self) -> bool:
        """Whether the next batch waits a moment for more items: it is smaller than each that runs.

        Batches of equal size cost the least. A batch that ends, or the moment, starts it in any case.
        """
        if not self._running or len(self._queue) >= min(self._running.values()) or self._moment_over:
            self._moment_over = False
            return False
        if self._moment is None:
            self._moment = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._end_moment)
        return True

    def _end_moment(self) -> None:
        self._moment, self._moment_over = None, bool(self._queue)
        self._start()
        self._moment_over = False

    def _take(self) -> list[_Waiting[Item]]:
        """The next items in order of arrival, without those whose key is in flight."""
        taken: list[_Waiting[Item]] = []
        left: list[_Waiting[Item]] = []
        while self._queue and len(taken) < self._batch_max:
            one = self._queue.popleft()
            if one.answered.done():
                continue
            if one.key in self._keys_in_flight:
                left.append(one)
                continue
            self._keys_in_flight.add(one.key)
            taken.append(one)
        self._queue.extendleft(reversed(left))
        self._waiting.set(len(self._queue))
        return taken

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            # Failures of a command are results; this is a failure of the queue, and its callers would wait for ever.
            log.critical("a queue of requests died; ending the process", kind=self._kind, exc_info=task.exception())
            raise SystemExit(1)
        self._start()

    async def _run(self, batch: list[_Waiting[Item]]) -> None:
        items = [one.item for one in batch]
        self._sizes.observe(len(items))
        results: Sequence[Result | Deferred]
        try:
            results = await self._carry(items)
        except Problem as problem:
            results = [problem] * len(batch)
        except Exception as error:
            log.error("a list of requests failed", kind=self._kind, count=len(batch), exc_info=error)
            results = [Unforeseen()] * len(batch)
        for one, result in zip(batch, results, strict=True):
            if isinstance(result, Answer | Problem):
                self._answer(one, result)
            elif len(self._alone) >= self._batches_in_flight_max and not one.came_back:
                one.came_back = True
                self._back.append(one)
            else:
                self._alone.add(one)
                one.task = asyncio.create_task(self._run_alone(one, result))

    async def _run_alone(self, one: _Waiting[Item], deferred: Deferred) -> None:
        """A deferred item waits outside the batches, a few at a time: the others need connections too."""
        result: Result
        try:
            async with asyncio.timeout(TURN_SECONDS_MAX):
                await self._turn.acquire()
        except TimeoutError:
            result = Overloaded(f"too many {self._kind} wait for locked rows in this process; retry later")
        else:
            try:
                result = await deferred.retry_alone()
            except Exception as error:
                log.error("a request failed", kind=self._kind, exc_info=error)
                result = Unforeseen()
            finally:
                self._turn.release()
        self._answer(one, result)
        self._alone.discard(one)
        self._try_again()
        self._start()

    def _try_again(self) -> None:
        """Queue the items that came back before those that arrived since."""
        self._keys_in_flight.difference_update(one.key for one in self._back)
        self._queue.extendleft(reversed(self._back))
        self._back.clear()

    def _answer(self, one: _Waiting[Item], result: Result) -> None:
        self._keys_in_flight.discard(one.key)
        if one.answered.done():
            return
        if isinstance(result, Answer):
            COMBINED.labels(self._kind, "replayed" if result.replayed else str(result.status)).inc()
            one.answered.set_result(result)
        else:
            COMBINED.labels(self._kind, result.code).inc()
            one.answered.set_exception(result)
