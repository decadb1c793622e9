"""The state of one subscription to the feed: position, next request, meaning of a frame, backoff.

No I/O: the blocking and the asynchronous reader (`following`) share it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from berth.client.errors import BerthError, Overloaded, RequestTimeout, Unavailable, UnreadableAnswer
from berth.client.feed.event_frames import Frame
from berth.client.feed.events import Event, event_of_feed
from berth.client.log_errors import LeaderUnaccepted, log_gap
from berth.client.problems import error_from_problem
from berth.process.json_objects import JsonObject

SILENCE_SECONDS_MAX = 60.0
"""The feed sends at least a comment every 15 s; after this much silence the connection counts as dead."""
FIRST_PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 10.0
_PASSING = (Unavailable, Overloaded, RequestTimeout, LeaderUnaccepted)


@dataclass
class Subscription:
    """Everything up to `after` is done. With `types` or `subjects` there is no chain, and checkpoints move `after` on.

    `until`: the version with which it is complete; None: never.
    """

    after: int
    types: Sequence[str] = ()
    subjects: Sequence[str] = ()
    until: int | None = None
    tries: int = field(default=0, init=False)

    def is_complete(self) -> bool:
        """Whether every event up to `until` was delivered."""
        return self.until is not None and self.after >= self.until

    def request(self) -> JsonObject:
        """Arguments for an httpx client's `stream`."""
        query = [("after", str(self.after)), *(("types", one) for one in self.types)]
        query += [("subject", one) for one in self.subjects]
        if self.until is not None:
            query.append(("durable", "false"))
        limits = httpx.Timeout(30.0, read=SILENCE_SECONDS_MAX)
        return {
            "method": "GET", "url": "/v1/subscribe", "params": query, "timeout": limits,
            "headers": {"Accept": "text/event-stream"},
        }  # fmt: skip

    def take(self, frame: Frame) -> Event | None:
        """The frame's event, if it is new. Raises `LogGap` if one before it is missing.

        Raises `StreamEnded` at the `end` frame.
        """
        if frame.kind == "end":
            raise StreamEnded(frame.data)
        self.tries = 0
        if frame.kind == "checkpoint":
            content = json.loads(frame.data)
            self.after = max(self.after, int(content.get("scanned_to", content["committed_version"])))
            return None
        event = event_of_feed(frame.data)
        if event.version <= self.after:
            return None
        if event.prev_version is not None and event.prev_version > self.after:
            raise log_gap(self.after, event.prev_version)
        self.after = event.version
        return event if self.until is None or event.version <= self.until else None

    def pause_seconds(self, error: Exception) -> float:
        """The backoff before the next attempt, with jitter. Raises the error if reconnecting cannot help."""
        self.tries += 1
        return growing_pause_seconds(error, self.tries - 1)


def growing_pause_seconds(error: Exception, tries: int) -> float:
    """The exponential backoff after `tries` attempts, with jitter. Raises the error if reconnecting cannot help."""
    if isinstance(error, BerthError) and not isinstance(error, _PASSING):
        raise error
    step = min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 2.0 ** min(tries, 16))
    asked = error.retry_after_seconds if isinstance(error, BerthError) else None
    return max(step * random.uniform(0.5, 1.0), asked or 0.0)


class StreamEnded(Exception):
    """The server ended the stream; a new connection continues it or returns the reason."""


def refusal(response: httpx.Response) -> BerthError:
    """The named error for an answer that is no stream; its body has been read."""
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    return error_from_problem(
        response.status_code, problem if isinstance(problem, dict) else {}, response.headers.get("retry-after")
    )


def require_stream(response: httpx.Response) -> None:
    """Raises `UnreadableAnswer` for a success that is no stream of events."""
    kind = response.headers.get("content-type", "")
    if not kind.startswith("text/event-stream"):
        raise UnreadableAnswer(f"the feed answered {kind or 'nothing'}", code="unreadable_answer")
