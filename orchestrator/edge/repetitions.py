"""Coalesces repetitions: concurrent identical releases, cancels and confirms without a key share one transaction.

Requests that wait for their turn when the first of them begins its transaction are answered by it. A request that arrives later
waits for the next transaction, so no answer is older than the request that gets it. An answer that says that this request had the
effect (`"result": "ok"`) is its own alone: the others run again, and are answered `noop` as each alone would have been.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

import orjson

from orchestrator.http import metrics
from orchestrator.operations.store.operations import Answer, Operation, Repetition

_ANSWERED = metrics.COALESCED.labels("answered")
_TRIED_AGAIN = metrics.COALESCED.labels("tried_again")

_Key: TypeAlias = tuple[UUID, UUID, bytes]
"""Scope, principal and content: path, query and body."""


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Requests that share a transaction, which `leader` has not begun; `answer` is None in the end if they share none."""

    leader: str
    answer: asyncio.Future[Answer | None]


class Repetitions:
    """Requests of one process that may share a transaction. Holds an entry for each group that waits for its turn."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, _Group] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def answer(
        self, operation: Operation, repetition: Repetition, run: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """The answer of a `run` that began after this request arrived: its own, or that of an identical request.

        A `run` that raises, or has the effect, answers its own request alone; the others try again. Raises what its `run` raises.
        """
        key = (operation.scope, repetition.principal, operation.fingerprint)
        while True:
            group = self._waiting.get(key)
            if group is None:
                return await self._lead(key, operation.key, repetition, run)
            answer = await asyncio.shield(group.answer)
            if answer is not None:
                _ANSWERED.inc()
                repetition.note_leader(group.leader)
                return answer
            _TRIED_AGAIN.inc()

    async def _lead(
        self, key: _Key, leader: str, repetition: Repetition, run: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        group = self._waiting[key] = _Group(leader, asyncio.get_running_loop().create_future())
        answer: Answer | None = None
        try:
            try:
                await repetition.take_turn()
            finally:
                # From here on the answer may be older than a request that arrives.
                del self._waiting[key]
            answer = await run()
            return answer
        finally:
            group.answer.set_result(None if answer is None or _says_that_it_had_the_effect(answer) else answer)


def _says_that_it_had_the_effect(answer: Answer) -> bool:
    if answer.status >= 400:
        return False
    document = orjson.loads(answer.body) if answer.body else None
    return not isinstance(document, dict) or document.get("result") == "ok"
