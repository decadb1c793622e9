"""What subscribers are sent, made once for all who get the same: server-sent events (WHATWG HTML, "Server-sent events"), or
lines that are a message on a WebSocket each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson

from orchestrator.log.store.feed import ALL, FeedEvent, Filter

# Neither ends with an empty line: some clients dispatch an empty event for a block without data.
PRELUDE: Final = b"retry: 1000\n"
KEEPALIVE: Final = b": keepalive\n"
NOTHING: Final = b""
"""A WebSocket has signs of life of its own."""


@dataclass(frozen=True, slots=True)
class Audience:
    """All who get the same bytes: a tenant's, or operators (None); with the same filter; with checkpoints or without; on a
    WebSocket or as server-sent events.
    """

    tenant_id: UUID | None
    chosen: Filter = ALL
    durable: bool = True
    on_socket: bool = False

    @property
    def keepalive(self) -> bytes:
        """What is sent where there was nothing to say."""
        return NOTHING if self.on_socket else KEEPALIVE

    @property
    def has_checkpoints(self) -> bool:
        """Whether its position is told beside its events."""
        return not self.durable or not self.chosen.takes_all

    def frames(self, events: Iterable[FeedEvent]) -> bytes:
        """Those of the events that are for this audience."""
        framed = message if self.on_socket else frame
        if self.chosen.takes_all:
            if self.tenant_id is None:
                return b"".join([framed(event, event.version - 1) for event in events])
            return b"".join(
                [framed(event, event.prev_version) for event in events if event.tenant_id == self.tenant_id]
            )
        return b"".join(
            [
                framed(event, None)
                for event in events
                if (self.tenant_id is None or event.tenant_id == self.tenant_id)
                and self.chosen.takes(event.event_type, event.subject)
            ]
        )

    def checkpoint(self, version: int, leader_id: str) -> bytes:
        """Everything up to this version is durable, and was looked at."""
        told: dict[str, object] = {"committed_version": version, "leader_id": leader_id, "scanned_to": version}
        if self.on_socket:
            return orjson.dumps({"type": "checkpoint", "version": version, **told}) + b"\n"
        return b"id: %d\nevent: checkpoint\ndata: %b\n\n" % (version, orjson.dumps(told))


def frame(event: FeedEvent, prev_version: int | None) -> bytes:
    """One event; a filtered stream has no chain, hence no `prev_version`."""
    chain = "" if prev_version is None else f',"prev_version":{prev_version}'
    version = event.version
    return f'id: {version}\nevent: {event.event_type}\ndata: {{"version":{version}{chain}{event.rest}\n\n'.encode()


def message(event: FeedEvent, prev_version: int | None) -> bytes:
    """One event as a line; JSON has no bare line feed in it."""
    chain = "" if prev_version is None else f',"prev_version":{prev_version}'
    return f'{{"type":"event","version":{event.version}{chain}{event.rest}\n'.encode()


def end(reason: str, version: int) -> bytes:
    """Why the server ends the stream; the client comes again with `version`, or is then told more."""
    return b"event: end\ndata: %b\n\n" % orjson.dumps({"reason": reason, "version": version})


def bytes_of(events: Sequence[FeedEvent]) -> int:
    """About how much room the events take."""
    return sum(len(event.rest) + 200 for event in events)
