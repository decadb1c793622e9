"""Publishing: the log goes to NATS, in order, each event at the stream sequence that is its version.

Authority is with the stream. A session (one connection to each server) reads where the stream ends and goes on from
there; every publish names the sequence it must follow, so NATS refuses all publishers but one. A refused relay goes on
standby and checks about once a second whether the publisher makes progress; if what was due at the last check has not
gone out and nothing has moved, it takes over. A missing answer ends the session; the next one reads the outcome.

Nothing is published unless the stream ends with the event that the log has at that version (`continuity`). Where that is
not so, publishing stops and the relay stays up: each second a new session examines whether an operator has removed the cause.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from berth.process.backoff import Backoff, jittered
from berth.process.restore_gate import restore_behind
from outbox_relay.continuity import Known, require_same_event, resume_timeline
from outbox_relay.crash_points import CrashPoint, reach
from outbox_relay.feed import Feed
from outbox_relay.link import NatsLink, Outcome, PublishResult
from outbox_relay.messages import Event
from outbox_relay.metrics import Metrics
from outbox_relay.postgres import bounded_address
from outbox_relay.problems import PublishingStopped, ServerUnavailable, StoresNothing
from outbox_relay.reading import LogReader, LogStatus
from outbox_relay.settings import Settings
from outbox_relay.state import WAITING_FOR_RESTORE, LogHead, RelayState, Stopped
from outbox_relay.stream import first_version_to_publish, require_safe_configuration

FIRST_PAUSE_SECONDS = 0.05
# One is being stored while the next is on its way.
BATCHES_UNDER_WAY_MAX = 2
# How long an idle publisher relies on the sequencer's notification.
IDLE_LOOK_SECONDS = 1.0
# How often a relay that is stopped examines whether the cause is gone.
STOPPED_LOOK_SECONDS = 1.0

PUBLISHER = "publisher"
STANDING_BY = "standing by"

log = structlog.get_logger("publishing")


class Publisher:
    """Publishes until cancelled, whatever the servers do; where going on would harm, it waits for an operator."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        state: RelayState,
        head: LogHead,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.state = state
        self.head = head
        self.address = bounded_address(settings.database_url, "publishing")
        self.backoff = Backoff(FIRST_PAUSE_SECONDS, settings.relay_backoff_seconds_max)
        self._on_progress = on_progress
        self._stored = 0
        self._seen: LogStatus | None = None

    async def run(self) -> None:
        """One session after the other, a longer pause after each that achieved nothing."""
        while True:
            self.state.publishing = "waiting for postgres"
            try:
                async with LogReader.connected(self.address) as reader:
                    self.state.publishing = "waiting for nats"
                    async with NatsLink.connected(self.settings) as link:
                        await Session(self, reader, link).run()
            except ServerUnavailable as lost:
                self._note_stopped(None)
                self.state.publishing = f"waiting for {lost.server}"
                if restore_behind(lost) is not None:
                    self.state.publishing = WAITING_FOR_RESTORE
                if isinstance(lost, StoresNothing):
                    self._note_storing(False)
                self.metrics.publishing.set(0)
                self.metrics.reconnects.labels(server=lost.server, step="publishing").inc()
                log.warning("session_ended", server=lost.server, why=lost.why)
                await asyncio.sleep(self.backoff.next_seconds())
            except PublishingStopped as problem:
                self._note_stopped(Stopped(problem.reason, str(problem)))
                self.state.publishing = "stopped"
                self.metrics.publishing.set(0)
                await asyncio.sleep(jittered(STOPPED_LOOK_SECONDS))

    def note_status(self, status: LogStatus) -> None:
        """The log was seen like this; what another Postgres wrote is none of it."""
        if not status.is_foreign:
            self.head.advance(status.head)
            self._seen = status

    @property
    def known(self) -> Known | None:
        """What this relay has seen of the log, its sequencing included; None before it has."""
        seen = self._seen
        return None if seen is None else Known(seen.leader_id, self.head.version, seen.waits_for_standbys)

    def note_role(self, role: str, last_version: int) -> None:
        """This relay is the publisher, or a standby, behind `last_version`."""
        self._note_stopped(None)
        if self.state.publishing != role:
            log.info("role", role=role, last_version=last_version)
        self.state.publishing = role
        self.metrics.publishing.set(1 if role == PUBLISHER else 0)

    def note_progress(self, last_version: int) -> None:
        """The stream was seen to end at `last_version`, by our doing or another's."""
        self.backoff.reset()
        if last_version != self._stored:
            self._stored = last_version
            self._note_storing(True)
        self.metrics.note_published(last_version)
        self._on_progress(last_version)

    def _note_stopped(self, stopped: Stopped | None) -> None:
        before = self.state.stopped
        if stopped is not None and (before is None or before.reason != stopped.reason):
            self.metrics.stops.labels(reason=stopped.reason).inc()
            log.error("publishing_stopped", reason=stopped.reason, why=stopped.why)
        if before is not None:
            self.metrics.stopped.labels(reason=before.reason).set(0)
        if stopped is not None:
            self.metrics.stopped.labels(reason=stopped.reason).set(1)
        self.state.stopped = stopped

    def _note_storing(self, stores: bool) -> None:
        self.state.stores_nothing = not stores
        self.metrics.stores_nothing.set(0 if stores else 1)


@dataclass(frozen=True)
class _UnderWay:
    """A batch that was sent at `began` (a monotonic time) and whose answer is awaited."""

    events: list[Event]
    answer: asyncio.Task[PublishResult]
    began: float


class Session:
    """Publishing over one connection to each server. Methods raise `ServerUnavailable` and `PublishingStopped`."""

    def __init__(self, publisher: Publisher, reader: LogReader, link: NatsLink) -> None:
        self._publisher = publisher
        self._reader = reader
        self._link = link
        self._settings = publisher.settings
        self._metrics = publisher.metrics
        self._feed = Feed(reader, publisher.settings, publisher.metrics, publisher.head, link.message_bytes_max)
        self._under_way: deque[_UnderWay] = deque()
        self._saved = 0
        self._save_at = 0.0

    async def run(self) -> None:
        """Publish, or stand by while another does, until cancelled."""
        await self._work(None)

    async def reach(self, version: int) -> None:
        """Return when the stream holds `version`, by our doing or another's."""
        await self._work(version)

    async def _work(self, until: int | None) -> None:
        try:
            last_version = await self._enter_stream()
            while until is None or last_version < until:
                await require_same_event(self._reader, self._link, last_version)
                self._publisher.note_role(PUBLISHER, last_version)
                last_version = await self._publish_after(last_version, until)
                if until is not None and last_version >= until:
                    break
                self._publisher.note_role(STANDING_BY, last_version)
                last_version = await self._stand_by(until)
            await self._save_position(last_version)
        finally:
            for batch in self._under_way:
                batch.answer.cancel()
            await asyncio.gather(*(batch.answer for batch in self._under_way), return_exceptions=True)
            await self._feed.go_to(0)

    async def _save_position(self, stored: int) -> None:
        """Say in Postgres what NATS has: what was not said by then is kept for longer, and nothing else."""
        if stored > self._saved:
            await self._reader.save_position(stored)
            self._saved = stored
        self._publisher.note_status(await self._reader.read_status())
        self._save_at = time.monotonic() + self._settings.relay_observe_seconds

    async def _enter_stream(self) -> int:
        """Make sure of the stream and answer its last sequence."""
        found = await self._link.stream()
        if found is None:
            status = await self._reader.status()
            first = status.stream_begin
            await self._link.make_stream(first)
            reach(CrashPoint.STREAM_AFTER_MADE)
            log.info("stream_made", stream=self._settings.log_stream_name, first_version=first)
            found = await self._link.stream()
            if found is None:
                raise ServerUnavailable("nats", "the stream was made and is not there")
        require_safe_configuration(found.config, self._settings)
        if await resume_timeline(self._reader, self._link, found.state.last_seq, self._publisher.known):
            self._metrics.timelines_resumed.inc()
        await self._reader.commit_barrier()
        # The head is read after the stream's end: read the other way round, a busy log would seem to be behind NATS.
        status = await self._reader.status()
        self._publisher.note_status(status)
        self._metrics.note_head(status.head)
        first_version_to_publish(found.state.last_seq, status.head, status.lowest_publishable)
        return found.state.last_seq

    async def _publish_after(self, last_version: int, until: int | None) -> int:
        """Publish what follows `last_version`, until another relay publishes or `until` is stored.

        Answers what is known to be stored last.
        A second batch is sent while the first is being stored. Order needs no answer: it can only be stored where the
        first one ends.
        """
        await self._feed.go_to(last_version)
        self._metrics.note_published(last_version)
        stored = last_version
        while until is None or self._feed.cursor < until or self._under_way:
            if time.monotonic() >= self._save_at:
                await self._save_position(stored)
            if len(self._under_way) < BATCHES_UNDER_WAY_MAX and (self._feed.has_more() or not self._under_way):
                batch = await self._feed.next_batch()
                if batch:
                    self._send(batch)
                elif not self._under_way:
                    # Nothing else would notice that NATS is gone, or has returned with an earlier state, until the next event.
                    self._link.require_connected()
                    await self._publisher.head.wait_beyond(self._feed.cursor, IDLE_LOOK_SECONDS)
                continue
            sent = self._under_way[0]
            answer = await sent.answer
            self._under_way.popleft()
            if answer.outcome is Outcome.STORED:
                self._count(sent)
            elif not await self._recover(sent.events, answer):
                break
            stored = sent.events[-1].version
        return self._feed.cursor

    def _send(self, events: list[Event]) -> None:
        # Tasks begin in the order of their making, so batches are written in order.
        answer = asyncio.create_task(self._link.publish(events, events[0].version - 1))
        self._under_way.append(_UnderWay(events, answer, time.perf_counter()))

    def _count(self, sent: _UnderWay) -> None:
        reach(CrashPoint.PUBLISHING_AFTER_STORED)
        self._metrics.publish_seconds.observe(time.perf_counter() - sent.began)
        self._metrics.publish_batch_events.observe(len(sent.events))
        self._metrics.published.inc(len(sent.events))
        self._metrics.event_age_seconds.observe(max(0.0, time.time() - sent.events[0].occurred_seconds))
        self._publisher.note_progress(sent.events[-1].version)

    async def _recover(self, events: list[Event], answer: PublishResult) -> bool:
        """After the refusal of `events`: publish them another way and continue; return False if another relay publishes."""
        while self._under_way:
            # Sent behind what was refused, so refused as well: what matters is that they are settled.
            await self._under_way[0].answer
            self._under_way.popleft()
        before, last = events[0].version - 1, events[-1].version
        if answer.outcome is Outcome.IMPOSSIBLE:
            self._metrics.refused_batches.labels(reason=answer.reason).inc()
            answer = await self._publish_singly(events)
        elif answer.outcome is Outcome.BUSY:
            answer = await self._insist(events, answer)
        if answer.outcome is not Outcome.STORED:
            self._metrics.refused_batches.labels(reason=answer.reason).inc()
            await self._feed.go_to(before)
            return False
        self._publisher.note_progress(last)
        await self._feed.go_to(last)
        return True

    async def _insist(self, events: list[Event], answer: PublishResult) -> PublishResult:
        """Publish the same events again and again while NATS answers that it is busy."""
        while answer.outcome is Outcome.BUSY:
            self._metrics.refused_batches.labels(reason=answer.reason).inc()
            await asyncio.sleep(self._publisher.backoff.next_seconds())
            answer = await self._link.publish(events, events[0].version - 1)
        return answer

    async def _publish_alone(self, event: Event) -> PublishResult:
        return await self._insist([event], await self._link.publish([event], event.version - 1))

    async def _publish_singly(self, events: list[Event]) -> PublishResult:
        """Publish each event of a refused batch alone; what is refused alone too goes out as a stub, at its place."""
        for event in events:
            answer = await self._publish_alone(event)
            if answer.outcome is Outcome.IMPOSSIBLE:
                answer = await self._publish_alone(await self._feed.stub(event, answer.reason))
                if answer.outcome is Outcome.IMPOSSIBLE:
                    raise ServerUnavailable(
                        "nats", f"it refuses even a stub of version {event.version}: {answer.reason}"
                    )
            if answer.outcome is not Outcome.STORED:
                return answer
            self._metrics.published.inc()
        return PublishResult(Outcome.STORED)

    async def _stand_by(self, until: int | None) -> int:
        """Wait until events are due and no relay publishes, or `until` is stored; return the version to continue after."""
        before: int | None = None
        due = 0
        while True:
            await asyncio.sleep(jittered(self._settings.relay_step_back_seconds))
            last_version = await self._link.stream_end()
            if last_version is None:
                raise ServerUnavailable("nats", "the stream is gone")
            self._publisher.note_progress(last_version)
            await self._save_position(last_version)
            if until is not None and last_version >= until:
                return last_version
            if last_version == before and last_version < due:
                return last_version
            before = last_version
            status = await self._reader.status()
            first_version_to_publish(last_version, status.head, status.lowest_publishable)
            due = status.head
