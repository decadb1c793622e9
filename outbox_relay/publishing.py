"""Publishing: the log goes to NATS, in order, each event at the stream sequence that is its version.

Authority is with the stream. A session (one connection to each server) reads where the stream ends and goes on from
there; every publish names the sequence it must follow, so NATS refuses all publishers but one. Who is refused stands by
and looks about once a second whether the other one is at work; if what was due a look ago has not gone out and nothing
has moved, it takes over. An answer that never came ends the session, and the next one reads what became of it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import structlog

from outbox_relay.link import Answer, NatsLink, Outcome
from outbox_relay.messages import Event, is_publishable
from outbox_relay.metrics import Metrics
from outbox_relay.pauses import Backoff, spread
from outbox_relay.postgres import bounded_address
from outbox_relay.problems import PublishingStopped, ServerUnavailable
from outbox_relay.reading import LogReader
from outbox_relay.settings import Settings
from outbox_relay.state import LogHead, RelayState
from outbox_relay.stream import first_version_to_publish, require_safe_configuration

# Room in a message for its headers: some 250 bytes and an inbox.
HEADER_BYTES_MAX = 1_024
# How long an idle publisher trusts that it would be told of news.
IDLE_LOOK_SECONDS = 1.0

log = structlog.get_logger("publishing")


class Publisher:
    """Publishes until cancelled, whatever the servers do. Raises `PublishingStopped` where going on would harm."""

    def __init__(self, settings: Settings, metrics: Metrics, state: RelayState, head: LogHead) -> None:
        self.settings = settings
        self.metrics = metrics
        self.state = state
        self.head = head
        self.address = bounded_address(settings.database_url, "publishing")
        self.backoff = Backoff(settings.relay_backoff_seconds_max)

    async def run(self) -> None:
        """One session after the other, a longer pause after each that achieved nothing."""
        while True:
            self.state.publishing = "waiting for postgres"
            try:
                async with LogReader.connected(self.address) as reader:
                    self.state.publishing = "waiting for nats"
                    async with NatsLink.connected(self.settings) as link:
                        await _Session(self, reader, link).run()
            except ServerUnavailable as lost:
                self.state.publishing = f"waiting for {lost.server}"
                self.metrics.publishing.set(0)
                self.metrics.reconnects.labels(server=lost.server, step="publishing").inc()
                log.warning("session_ended", server=lost.server, why=lost.why)
                await asyncio.sleep(self.backoff.next_seconds())
            except PublishingStopped as stopped:
                self.state.publishing = "stopped"
                self.metrics.publishing.set(0)
                self.metrics.stopped.labels(reason=stopped.reason).inc()
                log.error("publishing_stopped", reason=stopped.reason, why=str(stopped))
                raise

    def note_progress(self, last_version: int) -> None:
        """The stream was seen to end at `last_version`, by our doing or another's."""
        self.backoff.reset()
        self.metrics.note_published(last_version)


class _Session:
    """Publishing over one connection to each server."""

    def __init__(self, publisher: Publisher, reader: LogReader, link: NatsLink) -> None:
        self._publisher = publisher
        self._reader = reader
        self._link = link
        self._settings = publisher.settings
        self._metrics = publisher.metrics
        self._ready: list[Event] = []
        self._ahead: asyncio.Task[list[Event]] | None = None

    async def run(self) -> None:
        try:
            last_version = await self._enter_stream()
            while True:
                self._take_role(publisher=True, last_version=last_version)
                last_version = await self._publish_until_refused(last_version)
                self._take_role(publisher=False, last_version=last_version)
                last_version = await self._stand_by()
        finally:
            await self._forget_ahead()

    def _take_role(self, *, publisher: bool, last_version: int) -> None:
        role = "publisher" if publisher else "standing by"
        if self._publisher.state.publishing != role:
            log.info("role", role=role, last_version=last_version)
        self._publisher.state.publishing = role
        self._metrics.publishing.set(1 if publisher else 0)
        self._metrics.note_published(last_version)

    async def _enter_stream(self) -> int:
        """Make sure of the stream and answer its last sequence."""
        found = await self._link.stream()
        if found is None:
            standing = await self._reader.standing()
            first = standing.lowest_kept or standing.head + 1
            await self._link.make_stream(first)
            log.info("stream_made", stream=self._settings.log_stream_name, first_version=first)
            found = await self._link.stream()
            if found is None:
                raise ServerUnavailable("nats", "the stream was made and is not there")
        require_safe_configuration(found.config, self._settings)
        # The head is read after the stream's end: read the other way round, a busy log would seem to be behind NATS.
        standing = await self._reader.standing()
        self._publisher.head.advance(standing.head)
        self._metrics.note_head(standing.head)
        first_version_to_publish(found.state.last_seq, standing.head, standing.lowest_kept)
        return found.state.last_seq

    async def _publish_until_refused(self, last_version: int) -> int:
        """Publish what follows `last_version`, for as long as nobody else does; answer how far we came."""
        while True:
            batch = await self._next_batch(last_version)
            if not batch:
                await self._publisher.head.wait_beyond(last_version, IDLE_LOOK_SECONDS)
                continue
            self._read_ahead(batch[-1].version)
            began = time.perf_counter()
            answer = await self._publish(batch, last_version)
            if answer.outcome is Outcome.IMPOSSIBLE:
                answer = await self._publish_singly(batch, last_version)
            if answer.outcome is not Outcome.STORED:
                await self._forget_ahead()
                return last_version
            last_version = batch[-1].version
            self._count(batch, time.perf_counter() - began)

    def _count(self, batch: list[Event], seconds: float) -> None:
        self._metrics.publish_seconds.observe(seconds)
        self._metrics.publish_batch_events.observe(len(batch))
        self._metrics.published.inc(len(batch))
        self._metrics.event_age_seconds.observe(max(0.0, time.time() - batch[0].occurred_seconds))
        self._publisher.note_progress(batch[-1].version)

    async def _publish(self, batch: list[Event], last_version: int) -> Answer:
        """Publish a batch whose members never change, again while NATS is busy."""
        while True:
            answer = await self._link.publish(batch, last_version)
            if answer.outcome is Outcome.STORED:
                return answer
            self._metrics.refused_batches.labels(reason=answer.reason).inc()
            if answer.outcome is not Outcome.BUSY:
                return answer
            await asyncio.sleep(self._publisher.backoff.next_seconds())

    async def _publish_singly(self, batch: list[Event], last_version: int) -> Answer:
        """Publish each event of a refused batch alone; what is refused alone too goes out as a stub, at its place."""
        for event in batch:
            answer = await self._publish([event], last_version)
            if answer.outcome is Outcome.IMPOSSIBLE:
                stub = await self._stub(event, answer.reason)
                answer = await self._publish([stub], last_version)
                if answer.outcome is Outcome.IMPOSSIBLE:
                    raise ServerUnavailable(
                        "nats", f"it refuses even a stub of version {event.version}: {answer.reason}"
                    )
            if answer.outcome is not Outcome.STORED:
                return answer
            last_version = event.version
        return Answer(Outcome.STORED)

    async def _stub(self, event: Event, reason: str) -> Event:
        log.error("stub", version=event.version, event_type=event.event_type, reason=reason, size=len(event.document))
        self._metrics.stubs.labels(reason=reason).inc()
        return await self._reader.stub(event.version, reason)

    async def _next_batch(self, last_version: int) -> list[Event]:
        """The events that follow `last_version`, as many as one batch may hold; empty if there are none."""
        if not self._ready:
            ahead, self._ahead = self._ahead, None
            read = await ahead if ahead is not None else await self._read(last_version)
            self._ready = [await self._or_stub(event) for event in read]
        if self._ready and self._ready[0].version != last_version + 1:
            raise PublishingStopped(
                "gap", f"the log goes from version {last_version} to {self._ready[0].version}; the database is damaged"
            )
        size = members = 0
        for event in self._ready:
            size += len(event.document)
            if members and size > self._settings.relay_publish_batch_bytes_max:
                break
            members += 1
        batch, self._ready = self._ready[:members], self._ready[members:]
        return batch

    async def _or_stub(self, event: Event) -> Event:
        if len(event.document) + HEADER_BYTES_MAX > self._link.message_bytes_max:
            return await self._stub(event, "too_large")
        if not is_publishable(event.event_type):
            return await self._stub(event, "event_type")
        return event

    async def _read(self, after: int) -> list[Event]:
        return await self._reader.events_after(after, self._settings.relay_publish_batch_max)

    def _read_ahead(self, after: int) -> None:
        """Begin to read what follows while NATS stores what was read, if there is anything."""
        if not self._ready and self._ahead is None and self._publisher.head.version > after:
            self._ahead = asyncio.create_task(self._read(after))

    async def _forget_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        self._ready = []
        if ahead is not None:
            ahead.cancel()
            with suppress(asyncio.CancelledError, ServerUnavailable):
                await ahead

    async def _stand_by(self) -> int:
        """Wait until nobody publishes though something is due; answer where to go on."""
        before: int | None = None
        due = 0
        while True:
            await asyncio.sleep(spread(self._settings.relay_step_back_seconds))
            last_version = await self._link.stream_end()
            if last_version is None:
                raise ServerUnavailable("nats", "the stream is gone")
            self._publisher.note_progress(last_version)
            if last_version == before and last_version < due:
                return last_version
            before = last_version
            standing = await self._reader.standing()
            first_version_to_publish(last_version, standing.head, standing.lowest_kept)
            due = standing.head
