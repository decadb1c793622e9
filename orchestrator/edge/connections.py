"""HTTP/1.1 connections with bounds on everything that a client can send, leave unsent, or leave unread.

uvicorn bounds how long a connection may idle after a response, and nothing else: half a head holds a file descriptor for ever,
a head may have any size, a client that reads no response holds its connection and its place among the requests in flight.
Here each state of a connection has a deadline and a bound; beyond it the connection ends, and no other notices.

| state | bound |
|---|---|
| head | `HEAD_SECONDS_MAX`, `HEAD_BYTES_MAX`, `FIELDS_MAX`; trailers are refused |
| body | bytes and seconds by `Edge`; `PIECES_MAX` chunks; between two of them `HEAD_BYTES_MAX` bytes of framing |
| requests before a response | `PIPELINED_MAX` |
| response | `UNREAD_SECONDS_MAX` without progress |
| body that was not read before the response ended | `LINGER_SECONDS`, `LINGER_BYTES_MAX`; then the connection is closed |
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from orchestrator.edge.connection_counts import Accepted, ConnectionCounts
from orchestrator.edge.connection_parts import ListenerState, Pipeline, SmallEvent, collect_body, hold_body
from orchestrator.edge.ended_transport import ENDED
from orchestrator.http.problem_documents import MEDIA_TYPE, problem_response
from orchestrator.problems import HeadTooLarge, Malformed, Overloaded, Problem

HEAD_SECONDS_MAX = 10.0
"""From the first byte of a connection or request to the end of its head."""
HEAD_BYTES_MAX = 16 * 1024
"""Request line and headers together."""
FIELDS_MAX = 100
"""Header fields of a request."""
PIECES_MAX = 2_048
"""Chunks of a body, or parts in which it arrives: each costs as much as a hundred bytes. Of the largest body, 128 bytes each."""
PIPELINED_MAX = 8
"""Requests of a connection that wait for the response before theirs."""
UNREAD_SECONDS_MAX = 20.0
"""How long a client may read nothing while a response waits to be sent."""
LINGER_SECONDS = 2.0
"""How long what a client still sends is discarded, so that it can read its response first (RFC 9112 §9.6)."""
LINGER_BYTES_MAX = 1024 * 1024
STOPPING_IDLE_SECONDS = 0.2
"""How long a connection without a request stays open after its server began to stop: a request may be on its way."""
STOPPING_LINGER_SECONDS = 0.3
"""As `LINGER_SECONDS`, for such a connection: it has no response to read."""

UNREADABLE = "the request is not HTTP/1.1: check the request line and headers for control characters"
_UNREADABLE = Malformed(UNREADABLE)
STATUS_LINES = {
    400: b"HTTP/1.1 400 Bad Request",
    431: b"HTTP/1.1 431 Request Header Fields Too Large",
    503: b"HTTP/1.1 503 Service Unavailable",
}


def too_large_head() -> Problem:
    """The refusal of a head beyond its bounds."""
    return HeadTooLarge(f"request line and headers may have {HEAD_BYTES_MAX} bytes and {FIELDS_MAX} fields")


def _end_if_unread(cycle: weakref.ref[RequestResponseCycle]) -> None:
    """Let the connection end with the response that is about to start, if the request's body is not here by now."""
    found = cycle()
    if found is not None and found.more_body:
        found.keep_alive = False


class _ResponseTransport:
    """What uvicorn writes a response to: closing waits until the client had a chance to read it."""

    __slots__ = ("_protocol", "is_closing", "write")

    def __init__(self, protocol: BoundedHttpProtocol) -> None:
        self._protocol: BoundedHttpProtocol | None = protocol
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing

    def close(self) -> None:
        """End the connection after the response."""
        if self._protocol is not None:
            self._protocol.end_after_response()

    def forget(self) -> None:
        """The connection has ended."""
        self._protocol = None
        self.write, self.is_closing = ENDED.write, ENDED.is_closing


class BoundedHttpProtocol(HttpToolsProtocol):
    """A connection that ends where a client exceeds a bound. `counts`: the listener's connections.

    `accepted`: the connection is counted already, and comes from where this says.
    """

    def __init__(self, *args: Any, counts: ConnectionCounts, accepted: Accepted | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pipeline = Pipeline()  # type: ignore[assignment]
        self._counts = counts
        self._accepted = accepted
        self._uncount: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._refusal: Problem = _UNREADABLE
        self._deaf = False  # whether what the client sends is discarded
        self._upgraded = False  # whether another protocol has the connection now
        self._lingers = False  # whether it ends soon, whatever the client does
        self._discarded = 0
        self._stopping = False  # whether its server stops
        self._stop_timer: asyncio.TimerHandle | None = None
        self._head_done = True
        self._head_bytes = 0
        self._pieces = 0  # of the body
        self._progress = False  # whether the last piece of data ended anything
        self._unparsed = 0

    def connection_made(self, transport: Any) -> None:
        """The first request's head is due."""
        super().connection_made(transport)
        self.flow._is_writable_event = SmallEvent(is_set=True)
        self._response_transport: Any = _ResponseTransport(self)
        if self._accepted is not None:
            self.client, self._uncount = self._accepted.client, self._accepted.uncount
        else:
            source = self.client[0] if self.client else ""
            self._uncount = self._counts.add(source)
        if self._uncount is None:
            self._refuse_connection("too many connections are open here; close some, or retry later")
        else:
            self._expect_head()
        if isinstance(self.server_state, ListenerState) and self.server_state.stopping:
            self.shutdown()

    def shutdown(self) -> None:
        """The server stops: answer the requests that are here or arrive within a moment, then end the connection."""
        if self._stopping or self._lingers:
            return
        self._stopping = True
        if self._is_idle():
            self._stop_timer = self.loop.call_later(STOPPING_IDLE_SECONDS, self._end_idle)
        else:
            self.cycle.keep_alive = False

    def is_streaming(self) -> bool:
        """Whether a response without a known end has begun."""
        cycle = self.cycle
        return cycle is not None and bool(
            cycle.response_started and cycle.chunked_encoding and not cycle.response_complete
        )

    def _end_idle(self) -> None:
        self._stop_timer = None
        if not self._is_idle():
            return  # the response to the request that came ends the connection
        if not self._head_done:
            self._stop_timer = self.loop.call_later(STOPPING_IDLE_SECONDS, self._end_idle)
        elif self.transport.can_write_eof():
            self._linger(STOPPING_LINGER_SECONDS)  # a request that is on its way meets an end, and no reset
        else:
            self.transport.close()

    def _refuse_connection(self, detail: str) -> None:
        """Say why, and end the connection at once: lingering would hold what the bound is for."""
        self._deaf = self._lingers = True
        self._forget_timers()
        self._write_refusal(Overloaded(detail))
        self.transport.close()
        self.loop.call_soon(self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is due any more, and nothing of the connection is kept (orchestrator/edge/ended_transport.py)."""
        self._forget_timers()
        if self._stop_timer is not None:
            self._stop_timer.cancel()
        if self._uncount is not None:
            self._uncount()
            self._uncount = None
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._forget_connection()

    def abort(self) -> None:
        """End the connection at once; closing waits for a peer that does not read."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse a piece of data. What ends neither a head nor a piece of a body may only have `HEAD_BYTES_MAX` bytes."""
        if self._deaf:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES_MAX:
                self.transport.abort()
            return
        self._progress = False
        super().data_received(data)
        if self._upgraded:
            return
        self._unparsed = 0 if self._progress else self._unparsed + len(data)
        if self._unparsed > HEAD_BYTES_MAX and not self._deaf:
            self._refusal = too_large_head()
            self.send_400_response("")
        elif self._timer is None and self._is_idle():
            self._expect_head()  # what arrived is no request yet, and stopped the timer of an idle connection

    def on_message_begin(self) -> None:
        """Another request's head is due. Its state's `abort` ends the connection."""
        super().on_message_begin()
        self.scope["state"]["abort"] = self.abort
        self._head_done, self._head_bytes, self._pieces = False, 0, 0
        if self._timer is None:
            self._expect_head()

    def on_url(self, url: bytes) -> None:
        """A piece of the request line."""
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head. Fields after the body are refused: nothing here reads them."""
        if self._head_done:
            self._refusal = Malformed("trailer fields are not accepted")
            raise ValueError("the body has trailer fields")
        super().on_header(name, value)
        self._count_head(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._forget_head()
        self._progress = self._head_done = True
        if len(self.pipeline) >= PIPELINED_MAX:
            self._refusal = Overloaded(f"at most {PIPELINED_MAX} requests may wait for the responses before theirs")
            raise ValueError("too many requests wait for their responses")
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self.cycle.transport = self._response_transport
            self.cycle.message_event = SmallEvent()  # its task has not begun
            if self._stopping:
                self.cycle.keep_alive = False
            cycle = weakref.ref(self.cycle)
            self.scope["state"] |= {
                "end_if_unread": partial(_end_if_unread, cycle), "hold_body": partial(hold_body, cycle),
            }  # fmt: skip

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._progress = True
        self._pieces += 1
        if self._pieces > PIECES_MAX:
            self._refusal = Malformed(f"the body comes in more than {PIECES_MAX} pieces; send larger chunks")
            raise ValueError("the body has too many pieces")
        if self._pieces > 1:
            collect_body(self.cycle)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._progress = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Serve the next request, or wait for it."""
        if self._lingers:
            self.server_state.total_requests += 1
            return
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request with a problem document, after the responses that earlier requests still wait for.

        The name is uvicorn's; the status is that of the refusal.
        """
        if self._deaf or self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(self._refusal)
        elif self.cycle.more_body and not self.cycle.response_started and not self.pipeline:
            self.transport.abort()  # its own body cannot be read: there is nothing to respond to
        else:
            self.cycle.keep_alive = False
            self._deaf = True

    def end_after_response(self) -> None:
        """Close the connection; wait for a client that is still sending, and not for one that does not read."""
        if self.cycle.more_body:
            self._linger()
            return
        self.transport.close()
        self._expect_reading()

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection, whatever it has not read."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        """The client does not read: it has a deadline."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def handle_websocket_upgrade(self) -> None:
        """The connection goes on as a WebSocket, and counts until that ends."""
        self._upgraded = True
        self._forget_timers()
        uncount, self._uncount = self._uncount, None
        self.app_state = {**self.app_state, "uncount": uncount or (lambda: None), "client": self.client}
        super().handle_websocket_upgrade()
        self._forget_connection()

    def _forget_connection(self) -> None:
        self._response_transport.forget()
        self._response_transport = self.transport = self.flow._transport = ENDED
        self.cycle = self.scope = self.parser = None  # type: ignore[assignment]
        self.pipeline.clear()

    def _count_head(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > HEAD_BYTES_MAX or len(self.headers) > FIELDS_MAX:
            self._refusal = too_large_head()
            raise ValueError("the head is too large")

    def _refuse(self, problem: Problem) -> None:
        """Answer before there is a request, and end the connection."""
        self._write_refusal(problem)
        self._linger()

    def _write_refusal(self, problem: Problem) -> None:
        body = bytes(problem_response(problem).body)
        head = b"%b\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (STATUS_LINES[problem.status], MEDIA_TYPE.encode(), len(body)) + body)

    def _linger(self, seconds: float = LINGER_SECONDS) -> None:
        """Send no more, and discard what still comes, for a moment."""
        self._deaf = self._lingers = True
        self._forget_timers()
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(seconds, self._end_lingering)

    def _end_lingering(self) -> None:
        self._timer = None
        if self.transport.get_write_buffer_size():
            self.transport.close()
            self._expect_reading()
        else:
            self.transport.abort()

    def _expect_reading(self) -> None:
        """The client has to read something of what is written, again and again."""
        if self._unread_timer is None:
            unread = self.transport.get_write_buffer_size()
            self._unread_timer = self.loop.call_later(UNREAD_SECONDS_MAX, self._judge_reading, unread)

    def _judge_reading(self, unread_before: int) -> None:
        self._unread_timer = None
        if self.transport.get_write_buffer_size() >= unread_before:
            self.transport.abort()
        else:
            self._expect_reading()

    def _is_idle(self) -> bool:
        """Whether no request is being served or read."""
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS_MAX, self._give_up)

    def _forget_head(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget_timers(self) -> None:
        self._forget_head()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.flow.read_paused:
            self._expect_head()  # the rest of the head waits for this process to read it
        else:
            self.transport.abort()
