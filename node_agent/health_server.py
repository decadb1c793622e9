"""The agent's own port: `GET /metrics` and `GET /ok`, and nothing else.

A few lines of HTTP/1.1 (RFC 9112) instead of a web framework: it keeps the trusted base small. One request a
connection; a request that is not complete within five seconds or 8 KiB is dropped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

REQUEST_SECONDS_MAX = 5.0
REQUEST_BYTES_MAX = 8192


class HealthServer:
    """Serves what `metrics_text` and `state` return at the moment of asking."""

    def __init__(self, metrics_text: Callable[[], bytes], state: Callable[[], dict[str, Any]]) -> None:
        self._metrics_text = metrics_text
        self._state = state

    async def start(self, host: str, port: int) -> asyncio.Server:
        """Listen; raises OSError when the address is taken."""
        return await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.split(b"\r\n", 1)[0]))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            return
        finally:
            writer.close()

    def _answer(self, request_line: bytes) -> bytes:
        method, _, rest = request_line.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response(405, b"text/plain", b"only GET\n", method)
        if path == b"/metrics":
            return _response(200, b"text/plain; version=0.0.4; charset=utf-8", self._metrics_text(), method)
        if path == b"/ok":
            state = self._state()
            return _response(200 if state["ok"] else 503, b"application/json", json.dumps(state).encode(), method)
        return _response(404, b"text/plain", b"/metrics or /ok\n", method)


def _response(status: int, kind: bytes, body: bytes, method: bytes) -> bytes:
    reason = {200: b"OK", 404: b"Not Found", 405: b"Method Not Allowed", 503: b"Service Unavailable"}[status]
    head = b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, reason, kind, len(body)) + (body if method == b"GET" else b"")
