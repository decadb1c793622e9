"""The events that follow a version, cut into batches, read ahead of their being needed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from outbox_relay.messages import Event, is_publishable
from outbox_relay.metrics import Metrics
from outbox_relay.problems import PublishingStopped, ServerUnavailable
from outbox_relay.reading import LogReader
from outbox_relay.settings import Settings
from outbox_relay.state import LogHead

# Room in a message for its headers: some 250 bytes and an inbox.
HEADER_BYTES_MAX = 1_024

log = structlog.get_logger("publishing")


class Feed:
    """What comes after `cursor`, in order and without gaps. While one batch is under way, the next is being read.

    Events that no message can carry come out as stubs. Methods raise `ServerUnavailable` when Postgres is lost and
    `PublishingStopped` if a version is missing.
    """

    def __init__(
        self, reader: LogReader, settings: Settings, metrics: Metrics, head: LogHead, message_bytes_max: int
    ) -> None:
        self._reader = reader
        self._settings = settings
        self._metrics = metrics
        self._head = head
        self._document_bytes_max = message_bytes_max - HEADER_BYTES_MAX
        self._ready: list[Event] = []
        self._ahead: asyncio.Task[list[Event]] | None = None
        self.cursor = 0

    async def go_to(self, version: int) -> None:
        """Go on with what follows `version`, whatever was read before."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            with suppress(asyncio.CancelledError, ServerUnavailable):
                await ahead
        self._ready = []
        self.cursor = version

    def has_more(self) -> bool:
        """Whether a next batch is known to exist."""
        return bool(self._ready) or self._head.version > self.cursor

    async def next_batch(self) -> list[Event]:
        """The next events, as many as one batch may hold; empty if there are none. Moves the cursor behind them."""
        if not self._ready:
            ahead, self._ahead = self._ahead, None
            read = await ahead if ahead is not None else await self._read()
            # In order and each once: as many as the distance means that none is missing.
            if read and read[-1].version != self.cursor + len(read):
                raise PublishingStopped(
                    "gap", f"versions are missing in the log behind {self.cursor}; the database is damaged"
                )
            self._ready = [event if self._fits(event) else await self._stub_for(event) for event in read]
        if not self._ready:
            return []
        members = self._members()
        batch, self._ready = self._ready[:members], self._ready[members:]
        self.cursor = batch[-1].version
        if self.has_more() and not self._ready and self._ahead is None:
            self._ahead = asyncio.create_task(self._read())
        return batch

    async def stub(self, event: Event, reason: str) -> Event:
        """What goes out at the place of `event`, which cannot be published for `reason`."""
        log.error("stub", version=event.version, event_type=event.event_type, reason=reason, bytes=len(event.document))
        self._metrics.stubs.labels(reason=reason).inc()
        return await self._reader.stub(event.version, reason)

    async def _read(self) -> list[Event]:
        return await self._reader.events_after(self.cursor, self._settings.relay_publish_batch_max)

    def _members(self) -> int:
        size = 0
        for members, event in enumerate(self._ready):
            size += len(event.document)
            if members and size > self._settings.relay_publish_batch_bytes_max:
                return members
        return len(self._ready)

    def _fits(self, event: Event) -> bool:
        return len(event.document) <= self._document_bytes_max and is_publishable(event.event_type)

    async def _stub_for(self, event: Event) -> Event:
        too_large = len(event.document) > self._document_bytes_max
        return await self.stub(event, "too_large" if too_large else "event_type")
