"""The worker's own port: `/metrics` for Prometheus, `/ok` for whoever restarts processes.

Served from daemon threads, so that it answers however busy the loops are.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from worker.problems import CannotRun


class Health:
    """Whether the worker does its work: it has started, and it takes events from the log."""

    def __init__(self) -> None:
        self.started = False
        self.consuming = False

    @property
    def ok(self) -> bool:
        """Whether the process is worth keeping. Waiting for NATS to come back is no reason for a restart."""
        return self.started


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], health: Health) -> None:
        self.health = health
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 5

    def do_GET(self) -> None:
        """Answer one of the two paths."""
        if self.path == "/metrics":
            self._answer(200, CONTENT_TYPE_LATEST, generate_latest())
        elif self.path == "/ok":
            health = self.server.health
            body = {"ok": health.ok, "started": health.started, "consuming": health.consuming}
            self._answer(200 if health.ok else 503, "application/json", json.dumps(body).encode())
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
def served(host: str, port: int | None, health: Health) -> Iterator[None]:
    """Serve for the length of the context; nothing if `port` is None. Raises `CannotRun` if the port cannot be had."""
    if port is None:
        yield
        return
    try:
        server = _Server((host, port), health)
    except OSError as error:
        raise CannotRun(f"cannot listen on {host}:{port} for metrics: {error.strerror}") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
