"""When an event can never be handled: bounded tries, a dead letter with the reason, and only then the end of the message.

What passes by itself (Temporal or a connection away) is tried for as long as it takes. What is refused for good, and what
makes the handler fail, is tried `tries_max` times by a process, with a pause that doubles: a refusal may be the fault of
a server that is just being set up. What cannot be read will not become readable. Nobody waits behind such an event: it
holds one of many places, and while it pauses none.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from uuid import UUID

import orjson
import structlog
from nats.aio.msg import Msg
from temporalio.service import RPCError, RPCStatusCode

from orchestrator.log.commands.dead_letters import bury_event
from orchestrator.log.store.dead_letters import EXCERPT_LENGTH_MAX, Burial
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from worker.consumers.events import TYPE_PREFIX
from worker.metrics import EVENTS_GIVEN_UP

log = structlog.get_logger()

REMEMBERED_MAX = 10_000
LOGGED_LENGTH_MAX = 500
# https://grpc.github.io/grpc/core/md_doc_statuscodes.html: what the same call will get again.
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
    """Why an event was not handled: a stable word, and a sentence."""

    reason: str
    detail: str


def lasting_failure(error: Exception) -> Failure | None:
    """What the same try would meet again; None for what passes by itself."""
    if not isinstance(error, RPCError):
        return Failure("handler_error", f"{type(error).__name__}: {error}")
    if error.status in REFUSALS:
        return Failure("refused", f"{error.status.name}: {error.message}")
    return None


@dataclass(frozen=True, slots=True)
class Legible:
    """What can be read of a message that is no event for its consumer."""

    failure: Failure
    event_id: UUID | None
    event_type: str | None


def read_what_is_there(body: bytes, why: str) -> Legible:
    """Id and type of a message, as far as it has them, and whether it is a stub (docs/events.md)."""
    try:
        document = orjson.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return Legible(Failure("unreadable", why), None, None)
    data = document.get("data")
    if isinstance(data, dict) and data.get("stub") is True:
        failure = Failure("stub", f"the event could not be published whole: {data.get('reason')}")
    else:
        failure = Failure("unreadable", why)
    try:
        event_id = UUID(str(document.get("id")))
    except ValueError:
        event_id = None
    named = document.get("type")
    event_type = named.removeprefix(TYPE_PREFIX) if isinstance(named, str) else None
    return Legible(failure, event_id, event_type)


class GivingUp:
    """Keeps count of the tries of this process, puts events off, and buries what has been tried often enough."""

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
        """The event was handled."""
        self._tries.pop(message.metadata.sequence.stream, None)

    async def put_off(self, message: Msg) -> None:
        """What failed passes by itself: the event comes again in a moment."""
        await message.nak(delay=self._pause_seconds)

    async def put_off_or_bury(self, message: Msg, event_id: UUID, event_type: str, failure: Failure) -> None:
        """One more try failed for good: the event comes again after a longer pause, or never."""
        version = message.metadata.sequence.stream
        tries, since = self._tries.get(version, (0, time.monotonic()))
        tries += 1
        if tries < self._tries_max:
            self._remember(version, tries, since)
            await message.nak(delay=min(self._pause_seconds * 2 ** (tries - 1), self._pause_seconds_max))
            return
        await self._bury(message, event_id, event_type, failure, tries, time.monotonic() - since)

    async def bury_unreadable(self, message: Msg, why: str) -> None:
        """A message that is no event for this consumer, however often it comes."""
        found = read_what_is_there(message.data, why)
        await self._bury(message, found.event_id, found.event_type, found.failure, 1, 0.0)

    def _remember(self, version: int, tries: int, since: float) -> None:
        self._tries.pop(version, None)
        if len(self._tries) >= REMEMBERED_MAX:
            # The oldest goes; it is tried more often than it need be, and still not for ever.
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
            fresh = await bury_event(self._context, burial)
        except Problem as problem:
            # Not ended before it is kept: it comes again, and is buried then.
            log.warning("event_not_buried", version=version, why=problem.detail)
            self._remember(version, tries - 1, time.monotonic() - trying_seconds)
            await message.nak(delay=self._pause_seconds)
            return
        self._tries.pop(version, None)
        EVENTS_GIVEN_UP.labels(failure.reason).inc()
        log.error(
            f"event_{failure.reason}", version=version, subject=message.subject, event_id=str(event_id),
            event_type=event_type, tries=tries, why=failure.detail, dead_letter=fresh,
            excerpt=excerpt[:LOGGED_LENGTH_MAX],
        )  # fmt: skip
        await message.term()
