"""Encodes events once per audience: as server-sent events (WHATWG HTML), or as lines that are WebSocket messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson

from berth.process.json_objects import JsonObject
from orchestrator.log.store.feed import ALL, FeedEvent, Filter

# Neither ends with an empty line: some clients dispatch an empty event for a block without data.
PRELUDE: Final = b"retry: 1000\n"
KEEPALIVE: Final = b": keepalive\n"
NOTHING: Final = b""
"""WebSockets have ping frames."""


class EncodedEvents:
    """Events that were encoded for one audience, for the next one: filters decide whether an event is sent, not its bytes."""

    def __init__(self) -> None:
        self._frames: dict[tuple[int, int | None, bool], bytes] = {}

    def __len__(self) -> int:
        return len(self._frames)

    def framed(self, event: FeedEvent, prev_version: int | None, on_socket: bool) -> bytes:
        """The event as `frame` or `message` encodes it."""
        key = (event.version, prev_version, on_socket)
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = (message if on_socket else frame)(event, prev_version)
        return found


@dataclass(frozen=True, slots=True)
class Audience:
    """Subscribers that receive the same bytes: same tenant (None: operators), filter, durability and transport."""

    tenant_id: UUID | None
    chosen: Filter = ALL
    durable: bool = True
    on_socket: bool = False

    @property
    def keepalive(self) -> bytes:
        """The bytes sent when there were no events."""
        return NOTHING if self.on_socket else KEEPALIVE

    @property
    def has_checkpoints(self) -> bool:
        """Whether it receives checkpoints."""
        return not self.durable or not self.chosen.takes_all

    def frames(self, events: Iterable[FeedEvent], encoded: EncodedEvents | None = None) -> bytes:
        """Encode the events selected by this audience; those that `encoded` has are not encoded again."""
        framed = (EncodedEvents() if encoded is None else encoded).framed
        if self.chosen.takes_all:
            if self.tenant_id is None:
                return b"".join([framed(event, event.before, self.on_socket) for event in events])
            return b"".join(
                [
                    framed(event, event.prev_version, self.on_socket)
                    for event in events
                    if event.tenant_id == self.tenant_id
                ]
            )
        return b"".join(
            [
                framed(event, None, self.on_socket)
                for event in events
                if (self.tenant_id is None or event.tenant_id == self.tenant_id)
                and self.chosen.takes(event.event_type, event.subject)
            ]
        )

    def checkpoint(self, version: int, leader_id: str) -> bytes:
        """Encode a checkpoint: everything up to `version` is durable and was considered."""
        members: JsonObject = {"committed_version": version, "leader_id": leader_id, "scanned_to": version}
        if self.on_socket:
            return orjson.dumps({"type": "checkpoint", "version": version, **members}) + b"\n"
        return b"id: %d\nevent: checkpoint\ndata: %b\n\n" % (version, orjson.dumps(members))


def frame(event: FeedEvent, prev_version: int | None) -> bytes:
    """Encode an event as a server-sent event; without `prev_version` in a filtered stream."""
    chain = "" if prev_version is None else f',"prev_version":{prev_version}'
    version = event.version
    return f'id: {version}\nevent: {event.event_type}\ndata: {{"version":{version}{chain}{event.rest}\n\n'.encode()


def message(event: FeedEvent, prev_version: int | None) -> bytes:
    """Encode an event as a line; JSON contains no bare line feed."""
    chain = "" if prev_version is None else f',"prev_version":{prev_version}'
    return f'{{"type":"event","version":{event.version}{chain}{event.rest}\n'.encode()


def end(reason: str, version: int) -> bytes:
    """Encode the last event: why the server ends the stream, and the version to resume from."""
    return b"event: end\ndata: %b\n\n" % orjson.dumps({"reason": reason, "version": version})


def bytes_of(events: Sequence[FeedEvent]) -> int:
    """Return the approximate size of the events in memory."""
    return sum(len(event.rest) + 200 for event in events)
