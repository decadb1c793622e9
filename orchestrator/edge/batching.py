"""Combines requests that arrive together into one transaction (DESIGN §5): same answers, same isolation, fewer commits.

Creates, holds, confirms and commits have one queue each. A request that finds a free transaction slot runs at once; requests
that arrive while all slots are taken form the next batch, and one that would be smaller than those that run waits a moment
for more. Two requests with one key are never in the same batch: the second
waits for the first.

A batch takes its items round robin over the tenants. A light request does not wait for a slot: one more batch runs for light
requests alone. It is light if its tenant has few beside tenants with many, or if it names a node that few ask for beside a
node that many ask for, whose locks a shared batch waits for. While there are light requests the other batches are fewer, and
beside light tenants smaller, because the event loop and the processors are shared as well (docs/reference/performance.md).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypedDict, TypeVar, Unpack
from uuid import UUID

import structlog

from berth.process.fair_queue import FairQueue
from orchestrator.http.metrics import COMBINED, COMBINED_LIGHT, COMBINED_LIST_SIZE, COMBINING_QUEUE
from orchestrator.operations.execution import Deferred, Result
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import ConcurrencyLimited, Overloaded, Problem, Unforeseen

log = structlog.get_logger("orchestrator.api")
GATHER_SECONDS = 0.002
"""How long a batch smaller than those that run waits for more items."""
TURN_SECONDS_MAX = 10.0
"""How long a deferred item waits for its turn."""
SHARED_SECONDS = 1.0
"""How long after a light request the batches of the others stay smaller and fewer."""
SHARED_BATCH_SHARE, SHARED_SLOTS_SHARE = 4, 2
"""By how much: divisors of `batch_max` (beside light tenants only) and of `batches_in_flight_max`."""


class BatchBounds(TypedDict):
    """Most items of a batch, and most batches at once beside that of light requests."""

    batch_max: int
    batches_in_flight_max: int


class Combinable(Protocol):
    """A request that can be an item of a batch."""

    @property
    def operation(self) -> Operation:
        """Its operation: scope and idempotency key."""
        ...


Item = TypeVar("Item", bound=Combinable)
Places = Collection[Hashable]
Carry = Callable[[list[Item]], Awaitable[Sequence[Result | Deferred]]]
"""Executes a batch and returns one result per item, in input order; what it raises is the result of every item."""


@dataclass(slots=True, eq=False)
class _Waiting(Generic[Item]):
    """A request and the future of its answer; `came_back` once a batch deferred it, `task` where it runs alone."""

    item: Item
    answered: asyncio.Future[Answer]
    places: Places
    came_back: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def key(self) -> tuple[UUID, str]:
        """Scope and idempotency key."""
        return self.item.operation.scope, self.item.operation.key


class Batcher(Generic[Item]):
    """The queue between an endpoint and a command that takes a list.

    `places_of`: what an item asks for by name and others may ask for as well, each once; nothing where Berth chooses.

    Bounded: beyond `queue_max` requests are refused, unless it is None, as it is for verbs that end something (P13). A tenant
    may have as many waiting as there are places left, so one tenant takes half of them, two take two thirds.

    Deferred items run alone, a bounded number at once. An item that finds all turns taken waits until one of them ends, and
    then joins a batch once more: the first of many rivals has usually released what the others waited for.
    """

    def __init__(
        self,
        kind: str,
        carry: Carry[Item],
        *,
        queue_max: int | None,
        places_of: Callable[[Item], Places] = lambda item: (),
        **bounds: Unpack[BatchBounds],
    ) -> None:
        self._kind = kind
        self._carry = carry
        self._batch_max = bounds["batch_max"]
        self._batches_in_flight_max = bounds["batches_in_flight_max"]
        self._queue_max = queue_max
        self._places_of = places_of
        self._queue: FairQueue[_Waiting[Item], UUID] = FairQueue(
            lambda one: one.item.operation.scope, self._judge, lambda one: one.places
        )
        self._back: list[_Waiting[Item]] = []
        self._running: dict[asyncio.Task[None], int] = {}
        self._light: asyncio.Task[None] | None = None
        self._fewer_until = self._smaller_until = -math.inf
        self._moment: asyncio.TimerHandle | None = None
        self._moment_over = False
        self._alone: set[_Waiting[Item]] = set()
        self._turn = asyncio.Semaphore(self._batches_in_flight_max)
        self._keys_in_flight: set[tuple[UUID, str]] = set()
        self._waiting = COMBINING_QUEUE.labels(kind)
        self._sizes = COMBINED_LIST_SIZE.labels(kind)

    async def answer(self, item: Item) -> Answer:
        """Return the answer to one item. Raises the `Problem` that it met."""
        if self._queue_max is not None:
            self._require_place(item.operation.scope, self._queue_max)
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(item, answered, self._places_of(item))
        self._queue.append(waiting)
        self._waiting.set(len(self._queue))
        if self._queue.is_light(waiting):
            self._start_light()
        self._start_shared()
        return await answered

    def _require_place(self, tenant: UUID, queue_max: int) -> None:
        """Raise `Overloaded` if the queue is full, `ConcurrencyLimited` if the tenant has its share of the places."""
        left = queue_max - len(self._queue)
        if left <= 0:
            raise Overloaded(f"{queue_max} {self._kind} are waiting in this process, the most allowed; retry later")
        waiting = self._queue.waiting_of(tenant)
        if waiting >= left:
            raise ConcurrencyLimited(
                f"{waiting} {self._kind} of this tenant are waiting in this process, its share; retry later"
            )

    def _start(self) -> None:
        self._start_light()
        self._start_shared()

    def _start_shared(self) -> None:
        while self._queue and len(self._running) < self._slots() and not self._gathers():
            batch = self._take(
                self._batch_max // (SHARED_BATCH_SHARE if self._is_before(self._smaller_until) else 1) or 1
            )
            if not batch:
                return
            self._running[self._begin(batch)] = len(batch)

    def _start_light(self) -> None:
        """Start a batch of light items alone, beside the others, unless one runs."""
        if self._light is not None:
            return
        batch = self._take(self._batch_max, light=True)
        if batch:
            self._fewer_until = asyncio.get_running_loop().time() + SHARED_SECONDS
            if any(map(self._queue.has_light_tenant, batch)):
                self._smaller_until = self._fewer_until
            COMBINED_LIGHT.labels(self._kind).inc(len(batch))
            self._light = self._begin(batch)

    def _begin(self, batch: list[_Waiting[Item]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run(batch))
        task.add_done_callback(self._ended)
        return task

    def _is_before(self, moment: float) -> bool:
        return asyncio.get_running_loop().time() < moment

    def _slots(self) -> int:
        return self._batches_in_flight_max // (SHARED_SLOTS_SHARE if self._is_before(self._fewer_until) else 1) or 1

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

    def _take(self, count: int, *, light: bool = False) -> list[_Waiting[Item]]:
        taken = self._queue.take(count, light=light)
        self._waiting.set(len(self._queue))
        return taken

    def _judge(self, one: _Waiting[Item]) -> bool | None:
        """Whether a batch takes it: not while its key is in flight, and never once its client has gone."""
        if one.answered.done():
            return None
        if one.key in self._keys_in_flight:
            return False
        self._keys_in_flight.add(one.key)
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._light = None if task is self._light else self._light
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
        self._queue.put_back(self._back)
        self._back.clear()

    def _answer(self, one: _Waiting[Item], result: Result) -> None:
        self._keys_in_flight.discard(one.key)
        self._queue.done(one)
        if one.answered.done():
            return
        if isinstance(result, Answer):
            COMBINED.labels(self._kind, "replayed" if result.replayed else str(result.status)).inc()
            one.answered.set_result(result)
        else:
            COMBINED.labels(self._kind, result.code).inc()
            one.answered.set_exception(result)
