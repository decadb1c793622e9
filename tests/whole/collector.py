"""A collector of traces, as an operator would run one: OTLP over HTTP in, spans kept in memory."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class RecordedSpan:
    """One span: the service that recorded it, and its parent. Ids are lower-case hex."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began: int
    ended: int
    links: tuple[str, ...]
    failed: bool


class Collector:
    """What was received so far, and where to send it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._spans: list[RecordedSpan] = []
        self._lock = threading.Lock()

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Keep the spans of one export."""
        for resource in request.resource_spans:
            (service,) = [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    links = tuple(link.trace_id.hex() for link in span.links)
                    told = RecordedSpan(
                        service, span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                        span.start_time_unix_nano, span.end_time_unix_nano, links, span.status.code == 2,
                    )  # fmt: skip
                    with self._lock:
                        self._spans.append(told)

    def trace(self, trace_id: str) -> list[RecordedSpan]:
        """The spans of one trace, in the order in which they began."""
        with self._lock:
            return sorted((span for span in self._spans if span.trace_id == trace_id), key=lambda span: span.began)

    def linked_to(self, trace_id: str) -> list[RecordedSpan]:
        """The spans that name another trace, such as their caller's."""
        with self._lock:
            return [span for span in self._spans if trace_id in span.links]


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(ExportTraceServiceRequest.FromString(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
