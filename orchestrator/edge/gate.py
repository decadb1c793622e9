"""The gate: a single-flight cache of recent responses by idempotency key, so that duplicates cost the database nothing.

It repeats what the operations table said, for no longer than the table keeps it; unknown keys are decided by the table
(DESIGN §6; docs/explanation/decisions/0014-idempotency-gate.md). It may drop every entry at any time, and each process has one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

from orchestrator.edge.gate_entries import GateEntries
from orchestrator.edge.repetitions import Repetitions
from orchestrator.http import metrics
from orchestrator.operations.gate_settings import GateSettings
from orchestrator.operations.store.operations import Answer, Operation, stored_answer
from orchestrator.problems import OperationInProgress

BODY_LENGTH_MAX = 16_384
"""Longer answers are left to the table."""

ANSWER_BYTES = 1_024
"""What an answer takes beside its body: its key, fingerprint and entries."""

_HITS_COMMITTED = metrics.GATE_HITS.labels("committed")
_HITS_REJECTED = metrics.GATE_HITS.labels("rejected")
_WAITS_ANSWERED = metrics.GATE_WAITS.labels("answered")
_WAITS_RESOLVED = metrics.GATE_WAITS.labels("left_to_the_table")
_WAITS_TIMED_OUT = metrics.GATE_WAITS.labels("timed_out")
_PENDING = metrics.GATE_ENTRIES.labels("pending")
_CONCLUDED = metrics.GATE_ENTRIES.labels("concluded")


@dataclass(frozen=True, slots=True)
class _Concluded:
    fingerprint: bytes
    status: int
    body: str
    version: int | None


@dataclass(eq=False, slots=True)
class _Owner:
    """A request that carries an operation out. `ended` is set when it is over, whichever way."""

    began_at: float
    generation: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Gate:
    """One process's memory of operations. `clock` is monotonic, in seconds."""

    def __init__(self, settings: GateSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._entries: GateEntries[tuple[UUID, str], _Owner, _Concluded] = GateEntries(
            settings.max_entries, settings.max_bytes, settings.cleanup_interval_seconds
        )
        self._generation = 0
        self._repetitions = Repetitions()

    async def answer(self, operation: Operation, run: Callable[[], Awaitable[Answer]]) -> Answer:
        """What the operation was answered, if that is known here or about to be; else what `run` answers.

        At most one `run` of a key is under way here while it is waited for; beside it, in this process or another, the
        table lets no second one take effect. Raises `OperationConflict` for other content, `OperationInProgress` when the
        first did not end in time, and what `run` raises.
        """
        if operation.key_is_ours:
            repetition = operation.repetition
            return await (run() if repetition is None else self._repetitions.answer(operation, repetition, run))
        key = (operation.scope, operation.key)
        waited_since: float | None = None
        while True:
            now = self._clock()
            self._entries.sweep(now)
            concluded = self._entries.answer(key, now)
            if concluded is not None:
                if waited_since is not None:
                    _WAITS_ANSWERED.inc()
                (_HITS_COMMITTED if concluded.status < 400 else _HITS_REJECTED).inc()
                answer = stored_answer(operation, concluded.fingerprint, concluded.status, concluded.body)
                return replace(answer, version=concluded.version)
            owner = self._entries.owner(key)
            if owner is None or now - owner.began_at >= self._settings.pending_ttl_seconds:
                if waited_since is not None:
                    _WAITS_RESOLVED.inc()
                return await (self._carry_out(operation, run, now) if owner is None else run())
            waited_since = now if waited_since is None else waited_since
            await self._wait(owner, waited_since - now + self._settings.pending_wait_timeout)

    def forget(self) -> None:
        """Forget every answer, also those that are being given: another database may know other things."""
        self._generation += 1
        self._entries.forget()
        _CONCLUDED.set(0)
        metrics.GATE_BYTES.set(self._entries.bytes)

    async def _carry_out(self, operation: Operation, run: Callable[[], Awaitable[Answer]], now: float) -> Answer:
        key = (operation.scope, operation.key)
        owner = _Owner(now, self._generation)
        evicted = self._entries.begin(key, owner)
        if evicted is None:
            metrics.GATE_OVERFLOWS.inc()
            return await run()
        if evicted:
            metrics.GATE_EVICTIONS.inc(evicted)
        try:
            answer = await run()
            self._remember(operation, owner, answer)
            return answer
        finally:
            # Waiters look again, and find the answer or ask the table.
            self._entries.drop(key, owner)
            owner.ended.set()
            _PENDING.set(self._entries.pending)
            _CONCLUDED.set(self._entries.concluded)
            metrics.GATE_BYTES.set(self._entries.bytes)

    def _remember(self, operation: Operation, owner: _Owner, answer: Answer) -> None:
        """Keep an answer for its TTL, but no longer than the table keeps it: counted from before the table was asked."""
        settings = self._settings
        ttl_seconds = settings.committed_ttl_seconds if answer.status < 400 else settings.rejected_ttl_seconds
        now = self._clock()
        expires_at = min(now + ttl_seconds, owner.began_at + answer.kept_seconds)
        if expires_at <= now or len(answer.body) > BODY_LENGTH_MAX or owner.generation != self._generation:
            return
        concluded = _Concluded(operation.fingerprint, answer.status, answer.body, answer.version)
        size = ANSWER_BYTES + sys.getsizeof(answer.body)
        evicted = self._entries.conclude((operation.scope, operation.key), owner, concluded, expires_at, size)
        if evicted:
            metrics.GATE_EVICTIONS.inc(evicted)

    async def _wait(self, owner: _Owner, seconds: float) -> None:
        """Return once the owner has ended. Raises `OperationInProgress` if it does not within so many seconds."""
        if self._settings.wait_for_pending and seconds > 0:
            try:
                await asyncio.wait_for(owner.ended.wait(), seconds)
            except TimeoutError:
                pass
            if owner.ended.is_set():
                return
        _WAITS_TIMED_OUT.inc()
        raise OperationInProgress("a request with this key is being carried out; try again")
