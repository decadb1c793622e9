"""A minimal, conforming reader of server-sent events, and what tests do with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
from httpx_sse import EventSource

from tests.api.calling import Caller


@dataclass(frozen=True)
class StreamedEvent:
    """One dispatched event."""

    id: str
    event: str
    data: dict[str, Any]

    @property
    def version(self) -> int:
        """Where it is in the log."""
        return int(self.data["version"])


def parsed(lines: Iterator[str]) -> Iterator[StreamedEvent | str]:
    """Events, and comments as text (WHATWG HTML §9.2.6)."""
    last_id, kind, data = "", "message", ""
    for line in lines:
        if line.startswith(":"):
            yield line[1:].strip()
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            last_id = value
        elif name == "event":
            kind = value
        elif name == "data":
            data += value + "\n"
        elif not line:
            if data:
                yield StreamedEvent(last_id, kind, json.loads(data))
            kind, data = "message", ""


@contextmanager
def subscribed(
    caller: Caller, *, headers: dict[str, str] | None = None, **query: Any
) -> Iterator[Iterator[StreamedEvent | str]]:
    """An open stream."""
    sent = {"authorization": f"Bearer {caller.key}", **(headers or {})}
    with caller.http.stream("GET", "/v1/subscribe", params=query, headers=sent, timeout=30) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        yield parsed(answer.iter_lines())


def events_of(stream: Iterator[StreamedEvent | str], number: int) -> list[StreamedEvent]:
    """The next so many events, without checkpoints and comments."""
    found: list[StreamedEvent] = []
    while len(found) < number:
        told = next(stream)
        if isinstance(told, StreamedEvent) and told.event != "checkpoint":
            found.append(told)
    return found


def refused(caller: Caller, *, headers: dict[str, str] | None = None, **query: Any) -> httpx.Response:
    """An answer that is no stream."""
    sent = {"authorization": f"Bearer {caller.key}", **(headers or {})}
    return caller.http.get("/v1/subscribe", params=query, headers=sent)


def leave(database: psycopg.Connection[Any], tenant: Caller | None, number: int = 1, kind: str = "node.online") -> None:
    """Leave events in the outbox, as a transaction of ours does."""
    database.execute(
        "insert into outbox (event_type, correlation_id, tenant_id, subject, payload) "
        "select %s, uuidv7(), %s, 'things/' || n, jsonb_build_object('n', n, 'text', E'ä\\n:\"x') from generate_series(1, %s) n",
        (kind, None if tenant is None else tenant.tenant_id, number),
    )


def call_after_keepalives(source: EventSource, calls: list[Callable[[], object]]) -> None:
    """Make the next of `calls` whenever a keepalive has come."""
    texts = source.response.iter_text

    def watched(chunk_size: int | None = None) -> Iterator[str]:
        for text in texts(chunk_size):
            if text.startswith(":") and calls:
                calls.pop()()
            yield text

    source.response.iter_text = watched  # type: ignore[method-assign]
