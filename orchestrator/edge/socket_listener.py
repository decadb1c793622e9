"""WebSockets: uvicorn's protocol on `websockets`, with bounds on its buffers (docs/reference/notifications.md)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from orchestrator.edge.ended_transport import ENDED

FRAGMENTS_MAX = 16
"""Frames that one message may come in. The bound on a message's bytes does not count empty ones."""
UNREAD_BYTES_MAX = 1024 * 1024
"""Bytes that may wait for a client that sends pings and does not read the answers."""
FLUSH_SECONDS_MAX = 15.0
"""How long a closed socket may wait for a client that does not read what was said last."""
NO_TEXT, POLICY = 1007, 1008


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket that can be cut off: a closed transport waits for a peer that does not read.

    `control_frames_max`: pings and pongs that a client may send in a second; beyond it the socket is closed with 1008.
    """

    def __init__(self, *args: Any, control_frames_max: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._control_frames_max = control_frames_max
        self._second, self._control_frames = 0, 0
        self._flush_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """The application reaches the connection by `abort` in its scope's state."""
        self.app_state = {**self.app_state, "abort": self.abort}
        super().connection_made(transport)
        self.client = self.app_state["client"]  # not the transport's: the connection may have come through a proxy

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection counts no longer, and nothing of it is kept (orchestrator/edge/ended_transport.py)."""
        self.app_state["uncount"]()
        super().connection_lost(exc)
        self.transport = ENDED
        if self._flush_timer is not None:
            self._flush_timer.cancel()

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Reject with 400 if the first chunk is not a complete upgrade request."""
        super().data_received(data)
        if not self.handshake_initiated and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()

    def handle_ping(self) -> None:
        """Answer a ping, unless the client sends too many or does not read the answers."""
        if self.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self.transport.abort()
        elif self._is_within_rate():
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        """Take a pong, unless the client sends too many."""
        if self._is_within_rate():
            super().handle_pong(event)

    def _is_within_rate(self) -> bool:
        """Count a control frame; close the socket if there were too many in this second."""
        now = int(time.monotonic())
        self._second, self._control_frames = now, (self._control_frames + 1 if now == self._second else 1)
        if self._control_frames > self._control_frames_max and not self.close_sent:
            self.conn.fail(POLICY, "too many pings and pongs")
            self.handle_parser_exception()
        return self._control_frames <= self._control_frames_max

    def handle_cont(self, event: Frame) -> None:
        """Collect the fragments of a message, up to a bound."""
        if len(self.frames) >= FRAGMENTS_MAX:
            self.conn.fail(POLICY, "too many fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """Pass on a whole message. Text that is not UTF-8 closes the socket without an error in the log."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.conn.fail(NO_TEXT, "text is not UTF-8")
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        """Send a message. After the response that refuses an upgrade the handshake is over, which is not an error."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def on_task_complete(self, task: Any) -> None:
        """Close the connection, whatever the client does."""
        super().on_task_complete(task)
        if self.transport is not ENDED:
            self._flush_timer = self.loop.call_later(FLUSH_SECONDS_MAX, self.abort)
