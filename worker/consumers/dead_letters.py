"""Decides what happens to an event that failed: retry it after a pause, or store it as a dead letter and end its message.

| failure | tries | pause |
|---|---|---|
| a server is unavailable | unlimited | constant |
| Temporal refuses the call, or the handler raises | `tries_max` per process | doubles with each try |
| the message cannot be read | 1 | none |

A refusal is retried because a server that is being set up may refuse calls that it later accepts. A pausing event holds
no place among the events in flight.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from uuid import UUID

import orjson
import structlog
from nats.aio.msg import Msg
from temporalio.service import RPCError, RPCStatusCode

from orchestrator.log.commands import bury_event
from orchestrator.log.store.dead_letters import EXCERPT_LENGTH_MAX, Burial
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from worker.consumers.events import TYPE_PREFIX
from worker.metrics import EVENTS_GIVEN_UP

log = structlog.get_logger()

TRACKED_MAX = 10_000
LOGGED_LENGTH_MAX = 500
# https://grpc.github.io/grpc/core/md_doc_statuscodes.html: statuses that the same call will receive again.
REFUSALS = frozenset(
    {
        RPCStatusCode.INVALID_ARGUMENT,
        RPCStatusCode.NOT_FOUND,
        RPCStatusCode.ALREADY_EXISTS,
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.OUT_OF_RANGE,
        RPCStatusCode.UNIMPLEMENTED,
        RPCStatusCode.DATA_LOSS,
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an event was not handled: a stable code and a sentence."""

    reason: str
    detail: str


def lasting_failure(error: Exception) -> Failure | None:
    """The failure that another try would meet again; None if the cause is temporary."""
    if not isinstance(error, RPCError):
        return Failure("handler_error", f"{type(error).__name__}: {error}")
    if error.status in REFUSALS:
        return Failure("refused", f"{error.status.name}: {error.message}")
    return None


@dataclass(frozen=True, slots=True)
class PartialEvent:
    """The readable parts of a message that is no event for this consumer."""

    failure: Failure
    event_id: UUID | None
    event_type: str | None


def read_partially(body: bytes, why: str) -> PartialEvent:
    """The id and type of a message where it has them, and whether it is a stub (docs/reference/events.md)."""
    try:
        document = orjson.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return PartialEvent(Failure("unreadable", why), None, None)
    data = document.get("data")
    if isinstance(data, dict) and data.get("stub") is True:
        failure = Failure("stub", f"the event could not be published whole: {data.get('reason')}")
    else:
        failure = Failure("unreadable", why)
    try:
        event_id = UUID(str(document.get("id")))
    except ValueError:
        event_id = None
    full_type = document.get("type")
    event_type = full_type.removeprefix(TYPE_PREFIX) if isinstance(full_type, str) else None
    return PartialEvent(failure, event_id, event_type)


class FailedEvents:
    """Counts the tries of failed events in this process, delays their redelivery, and stores dead letters."""

    def __init__(
        self, context: Context, consumer: str, *, tries_max: int, pause_seconds: float, pause_seconds_max: float
    ) -> None:
        self._context = context
        self._consumer = consumer
        self._tries_max = tries_max
        self._pause_seconds = pause_seconds
        self._pause_seconds_max = pause_seconds_max
        self._tries: dict[int, tuple[int, float]] = {}

    def forget(self, message: Msg) -> None:
        """Drop the count of an event that was handled."""
        self._tries.pop(message.metadata.sequence.stream, None)

    async def retry_later(self, message: Msg) -> None:
        """Have the event redelivered after the constant pause, because the cause is temporary."""
        await message.nak(delay=self._pause_seconds)

    async def retry_or_bury(self, message: Msg, event_id: UUID, event_type: str, failure: Failure) -> None:
        """Have the event redelivered after a longer pause; after `tries_max` tries store a dead letter."""
        version = message.metadata.sequence.stream
        tries, since = self._tries.get(version, (0, time.monotonic()))
        tries += 1
        if tries < self._tries_max:
            self._track(version, tries, since)
            await message.nak(delay=min(self._pause_seconds * 2 ** (tries - 1), self._pause_seconds_max))
            return
        await self._bury(message, event_id, event_type, failure, tries, time.monotonic() - since)

    async def bury_unreadable(self, message: Msg, why: str) -> None:
        """Store a dead letter for a message that is no event for this consumer."""
        partial = read_partially(message.data, why)
        await self._bury(message, partial.event_id, partial.event_type, partial.failure, 1, 0.0)

    def _track(self, version: int, tries: int, since: float) -> None:
        self._tries.pop(version, None)
        if len(self._tries) >= TRACKED_MAX:
            # The oldest count is dropped: that event is tried more often than `tries_max`, and still not forever.
            del self._tries[next(iter(self._tries))]
        self._tries[version] = (tries, since)

    async def _bury(
        self,
        message: Msg,
        event_id: UUID | None,
        event_type: str | None,
        failure: Failure,
        tries: int,
        trying_seconds: float,
    ) -> None:
        version = message.metadata.sequence.stream
        excerpt = message.data[:EXCERPT_LENGTH_MAX].decode(errors="replace")
        burial = Burial(
            self._consumer, version, event_id, event_type, failure.reason, failure.detail, excerpt, tries,
            trying_seconds,
        )  # fmt: skip
        try:
            created = await bury_event(self._context, burial)
        except Problem as problem:
            # The message ends only after the letter is stored; until then it is redelivered.
            log.warning("event_not_buried", version=version, why=problem.detail)
            self._track(version, tries - 1, time.monotonic() - trying_seconds)
            await message.nak(delay=self._pause_seconds)
            return
        self._tries.pop(version, None)
        EVENTS_GIVEN_UP.labels(failure.reason).inc()
        log.error(
            f"event_{failure.reason}", version=version, subject=message.subject, event_id=str(event_id),
            event_type=event_type, tries=tries, why=failure.detail, dead_letter=created,
            excerpt=excerpt[:LOGGED_LENGTH_MAX],
        )  # fmt: skip
        await message.term()
