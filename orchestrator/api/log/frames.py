"""What subscribers are sent: server-sent events (WHATWG HTML, "Server-sent events"), made once for all who get the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson

from orchestrator.store.feed_rows import ALL, FeedEvent, Filter

PRELUDE: Final = b"retry: 1000\n\n"
KEEPALIVE: Final = b": keepalive\n\n"


@dataclass(frozen=True, slots=True)
class Audience:
    """All who get the same bytes: a tenant's, or operators (None); with the same filter; with checkpoints or without."""

    tenant_id: UUID | None
    chosen: Filter = ALL
    durable: bool = True

    @property
    def has_checkpoints(self) -> bool:
        """Whether its position is told beside its events."""
        return not self.durable or not self.chosen.takes_all

    def frames(self, events: Iterable[FeedEvent]) -> bytes:
        """Those of the events that are for this audience."""
        if self.chosen.takes_all:
            if self.tenant_id is None:
                return b"".join([frame(event, event.version - 1) for event in events])
            return b"".join([frame(event, event.prev_version) for event in events if event.tenant_id == self.tenant_id])
        return b"".join(
            [
                frame(event, None)
                for event in events
                if (self.tenant_id is None or event.tenant_id == self.tenant_id)
                and self.chosen.takes(event.event_type, event.subject)
            ]
        )

    def checkpoint(self, version: int, leader_id: str) -> bytes:
        """Everything up to this version is durable, and was looked at."""
        told: dict[str, object] = {"committed_version": version, "leader_id": leader_id}
        if not self.chosen.takes_all:
            told["scanned_to"] = version
        return b"id: %d\nevent: checkpoint\ndata: %b\n\n" % (version, orjson.dumps(told))


def frame(event: FeedEvent, prev_version: int | None) -> bytes:
    """One event; a filtered stream has no chain, hence no `prev_version`."""
    chain = "" if prev_version is None else f',"prev_version":{prev_version}'
    version = event.version
    return f'id: {version}\nevent: {event.event_type}\ndata: {{"version":{version}{chain}{event.rest}\n\n'.encode()


def end(reason: str, version: int) -> bytes:
    """Why the server ends the stream; the client comes again with `version`, or is then told more."""
    return b"event: end\ndata: %b\n\n" % orjson.dumps({"reason": reason, "version": version})


def bytes_of(events: Sequence[FeedEvent]) -> int:
    """About how much room the events take."""
    return sum(len(event.rest) + 200 for event in events)
