"""The relay's own port: `/metrics` for Prometheus, `/ok` for whoever restarts processes.

Served from a daemon thread, so that it answers however busy the loops are.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from outbox_relay.metrics import Metrics
from outbox_relay.problems import RelayProblem
from outbox_relay.state import RelayState


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], metrics: Metrics, state: RelayState) -> None:
        self.metrics = metrics
        self.state = state
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 5

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._answer(200, CONTENT_TYPE_LATEST, generate_latest(self.server.metrics.registry))
        elif self.path == "/ok":
            state = self.server.state
            told = state.told()
            self._answer(200 if told["ok"] else 503, "application/json", json.dumps(told).encode())
        else:
            self._answer(404, "text/plain", b"try /ok or /metrics\n")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing: scrapes are no news."""


@contextmanager
def served(host: str, port: int | None, metrics: Metrics, state: RelayState) -> Iterator[int | None]:
    """Serve for the length of the context and give the port; nothing if `port` is None.

    Raises `RelayProblem` if the port cannot be had.
    """
    if port is None:
        yield None
        return
    try:
        server = _Server((host, port), metrics, state)
    except OSError as error:
        raise RelayProblem(f"cannot listen on {host}:{port} for metrics: {error.strerror}") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
