"""Serves media over HTTP(S) to BMCs: GET and HEAD of secret paths, by ranges, on bounded connections.

It has no other path and needs no certificate of a client: a BMC has none. The secret of the path is what protects it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import h11
import structlog

from node_agent.media.medium import MediumChanged
from node_agent.media.metrics import MediaMetrics
from node_agent.media.publications import OwnMedium, Publications
from node_agent.media.ranges import Span, Unsatisfiable, asked_span

log = structlog.get_logger("node_agent.media")

CHUNK_BYTES: Final = 256 * 1024
HEAD_BYTES_MAX: Final = 16 * 1024


@dataclass(frozen=True)
class MediaLimits:
    """Bounds of the server. `chunk_seconds`: a reader that takes no 256 KiB within it is cut off."""

    connections_max: int = 256
    connections_per_source_max: int = 16
    head_seconds: float = 15.0
    idle_seconds: float = 60.0
    chunk_seconds: float = 60.0


class MediaServer:
    """Listens from `start` until `stop`. One instance serves all media of its `Publications`."""

    def __init__(self, publications: Publications, metrics: MediaMetrics, limits: MediaLimits = MediaLimits()) -> None:
        self._publications = publications
        self._metrics = metrics
        self._limits = limits
        self._sources: Counter[str] = Counter()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; the port, which the system chooses for 0. Raises OSError."""
        handshake = None if tls is None else self._limits.head_seconds
        self._server = await asyncio.start_server(
            self._accept, host, port, ssl=tls, limit=HEAD_BYTES_MAX, ssl_handshake_timeout=handshake
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Listen no longer and end every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = str((writer.get_extra_info("peername") or ("?",))[0])
        full = len(self._connections) >= self._limits.connections_max
        if full or self._sources[source] >= self._limits.connections_per_source_max:
            self._metrics.refused.inc()
            log.warning("media_connection_refused", source=source, connections=len(self._connections))
            writer.transport.abort()
            return
        self._sources[source] += 1
        connection = asyncio.ensure_future(
            _Connection(self._publications, self._metrics, self._limits, reader, writer).run()
        )
        self._connections.add(connection)
        self._metrics.connections.set(len(self._connections))

        def ended(done: asyncio.Task[None]) -> None:
            self._connections.discard(done)
            self._metrics.connections.set(len(self._connections))
            self._sources[source] -= 1
            if self._sources[source] <= 0:
                del self._sources[source]
            writer.transport.abort()
            if not done.cancelled() and (error := done.exception()) is not None:
                log.error("media_connection_defect", source=source, exc_info=error)

        connection.add_done_callback(ended)


class _Connection:
    """One connection: requests one after another."""

    def __init__(
        self,
        publications: Publications,
        metrics: MediaMetrics,
        limits: MediaLimits,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._publications = publications
        self._metrics = metrics
        self._limits = limits
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def run(self) -> None:
        """Until the client closes, is too slow, or sends what is no HTTP."""
        seconds = self._limits.head_seconds
        with suppress(TimeoutError, ConnectionError, ssl.SSLError, MediumChanged, h11.LocalProtocolError):
            while True:
                try:
                    request = await asyncio.wait_for(self._request(), seconds)
                except h11.RemoteProtocolError as error:
                    await self._answer_error(error.error_status_hint or 400)
                    return
                if request is None:
                    return
                await self._answer(request)
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    return
                self._http.start_next_cycle()
                seconds = self._limits.idle_seconds

    async def _request(self) -> h11.Request | None:
        """The next request with its body, which is dropped and must be short; None at the connection's end."""
        request: h11.Request | None = None
        body_bytes = 0
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(HEAD_BYTES_MAX))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body_bytes += len(event.data)
                if body_bytes > HEAD_BYTES_MAX:
                    raise h11.RemoteProtocolError("a request has no body here", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage):
                return request
            else:
                return None

    async def _answer(self, request: h11.Request) -> None:
        if request.method not in (b"GET", b"HEAD"):
            await self._answer_error(405, [("Allow", "GET, HEAD")])
            return
        own = self._publications.find(request.target.decode("latin-1"))
        if own is None:
            await self._answer_error(404)
            return
        headers = {name: value.decode("latin-1") for name, value in request.headers}
        size = own.medium.size_bytes
        try:
            asked = headers.get(b"range") if headers.get(b"if-range", own.etag) == own.etag else None
            span = asked_span(asked, size)
        except Unsatisfiable:
            await self._answer_error(416, [("Content-Range", f"bytes */{size}")])
            return
        status = 200 if span is None else 206
        span = span or Span(0, size)
        fields = [
            ("Content-Type", "application/octet-stream"), ("Content-Length", str(span.end - span.start)),
            ("Accept-Ranges", "bytes"), ("ETag", own.etag), ("Cache-Control", "no-store"),
        ]  # fmt: skip
        if status == 206:
            fields.append(("Content-Range", f"bytes {span.start}-{span.end - 1}/{size}"))
        self._metrics.answers.labels(status=str(status)).inc()
        await self._send(h11.Response(status_code=status, headers=fields))
        if request.method == b"GET":
            await self._send_content(own, span)
        await self._send(h11.EndOfMessage())

    async def _send_content(self, own: OwnMedium, span: Span) -> None:
        at = span.start
        while at < span.end:
            length = min(CHUNK_BYTES, span.end - at)
            try:
                data = await asyncio.to_thread(own.read, at, length)
            except MediumChanged as error:
                log.error("medium_changed", why=str(error))
                raise
            await self._send(h11.Data(data=data))
            self._metrics.sent_bytes.inc(length)
            at += length

    async def _answer_error(self, status: int, fields: list[tuple[str, str]] | None = None) -> None:
        self._metrics.answers.labels(status=str(status)).inc()
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send(h11.Response(status_code=status, headers=[("Content-Length", "0"), *(fields or [])]))
            await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        if data := self._http.send(event):
            self._writer.write(data)
            await asyncio.wait_for(self._writer.drain(), self._limits.chunk_seconds)
