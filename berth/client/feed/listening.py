"""Notifications as a value: where the listener is, what to ask, what a message means, what is due to be acknowledged.

No sockets here: the blocking and the asynchronous listener (`notifying`) share it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from berth.client.errors import BerthError, UnreadableAnswer
from berth.client.feed.events import Event, event_of_feed
from berth.client.feed.subscription import StreamEnded, growing_pause_seconds
from berth.client.log_errors import log_gap
from berth.client.problems import error_from_problem
from berth.client.requests.clocks import steady_seconds

ACK_SECONDS = 0.25
"""The least time between acknowledgements; each covers all events before it."""


@dataclass
class Listening:
    """`after`: every event up to it was yielded; None until the first message, which says where the stream begins.

    With a `subscription` the server stores the position; events passed to `done` are acknowledged.
    """

    subscription: str | None = None
    after: int | None = None
    types: Sequence[str] = ()
    subjects: Sequence[str] = ()
    _has_begun: bool = field(default=False, init=False)
    _tries: int = field(default=0, init=False)
    _done: int = field(default=-1, init=False)
    _acknowledged: int = field(default=-1, init=False)
    _acknowledged_at: float = field(default=0.0, init=False)

    def address(self, base: str) -> str:
        """Where to open the socket, of an API at `base`."""
        query = [("types", one) for one in self.types] + [("subject", one) for one in self.subjects]
        if self.subscription is not None:
            query.append(("subscription", self.subscription))
        if self.after is not None:
            query.append(("after", str(self.after)))
        asked = f"?{urlencode(query)}" if query else ""
        return f"ws{base.removeprefix('http')}/api/v1/notifications{asked}"

    def take(self, message: str | bytes) -> Event | None:
        """The message's event, if it is new.

        Raises `LogGap` if one before it is missing, `StreamEnded` if a new connection continues or returns the reason,
        and the named error of a refusal.
        """
        try:
            content = json.loads(message)
            kind = content["type"]
            if kind == "event":
                return self._new(event_of_feed(message))
            if kind == "begin":
                self._begin(int(content["after"]))
            elif kind == "checkpoint":
                self._look_past(int(content["version"]))
            elif kind == "error":
                raise (
                    error_from_problem(content["status"], content, None)
                    if "status" in content
                    else StreamEnded(content["code"])
                )
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableAnswer(f"a notification cannot be read: {error}", code="unreadable_answer") from error
        return None

    def done(self, event: Event) -> None:
        """Record that the reader has finished an event."""
        self._done = max(self._done, event.version)

    def acknowledgement(self) -> str | None:
        """What to send now, if anything is due."""
        if self.patience_seconds() != 0.0:
            return None
        return self.last_acknowledgement()

    def last_acknowledgement(self) -> str | None:
        """What to send before the socket is closed, if anything."""
        if self.subscription is None or self._done <= self._acknowledged:
            return None
        self._acknowledged, self._acknowledged_at = self._done, steady_seconds()
        return json.dumps({"type": "ack", "version": self._done})

    def patience_seconds(self) -> float | None:
        """How long to wait for a message until an acknowledgement is due; None: for as long as it takes."""
        if self.subscription is None or self._done <= self._acknowledged:
            return None
        return max(0.0, self._acknowledged_at + ACK_SECONDS - steady_seconds())

    def pause_seconds(self, error: Exception) -> float:
        """The backoff before the next attempt, with jitter. Raises the error if reconnecting cannot help."""
        self._tries += 1
        return growing_pause_seconds(error, self._tries - 1)

    def _begin(self, after: int) -> None:
        """Another listener of the subscription may have acknowledged more; or it was somewhere else all along."""
        self._tries = 0
        self.after = max(after, self.after or 0) if self._has_begun else after
        self._has_begun = True
        # Events delivered again on this socket are acknowledged on it: the server accepts no acknowledgement of another socket.
        self._done = self._acknowledged = after

    def _new(self, event: Event) -> Event | None:
        assert self.after is not None, "the first message says where it begins"
        if event.version <= self.after:
            self.done(event)
            return None
        if event.prev_version is not None and event.prev_version > self.after:
            raise log_gap(self.after, event.prev_version)
        self.after = event.version
        return event

    def _look_past(self, version: int) -> None:
        """Move past a checkpoint. Every event before it is done: it was yielded before this message was read."""
        assert self.after is not None, "the first message says where it begins"
        self.after = max(self.after, version)
        self._done = max(self._done, version)


def refusal(status: int, body: bytes, retry_after: str | None) -> BerthError:
    """The named error for an upgrade that was refused."""
    try:
        problem = json.loads(body or b"{}")
    except ValueError:
        problem = {}
    return error_from_problem(status, problem if isinstance(problem, dict) else {}, retry_after)
