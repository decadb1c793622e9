"""The port for metrics and health of a process: `GET /metrics` for Prometheus, `GET /ok` and `GET /live` for supervisors.

`/ok` is readiness: whether the process reaches what it needs. `/live` is liveness: whether its event loop turns; it asks no other
server, because a restart of this process would mend none of them. Daemon threads serve it, so it answers while the process's
event loop is busy.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from berth.process.json_objects import JsonMapping
from berth.process.loop_pulse import LoopPulse

REQUEST_SECONDS_MAX = 5
FROZEN_SECONDS = 30.0
"""An event loop that has run no callback for so long is frozen. A busy one runs some within a second; a paused virtual machine
or a slow disk may take several."""

State = Callable[[], JsonMapping]
"""Returns the body of `/ok`; its member `ok` decides between 200 and 503. Called from another thread."""


class CannotListen(Exception):
    """The port for metrics and health cannot be used; the message is one sentence."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], registry: CollectorRegistry, state: State, frozen_seconds: float
    ) -> None:
        self.registry = registry
        self.state = state
        self.frozen_seconds = frozen_seconds
        self.pulse = _pulse_of_this_loop()
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_SECONDS_MAX

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, CONTENT_TYPE_LATEST, generate_latest(self.server.registry))
        elif path == "/ok":
            state = self.server.state()
            self._answer(200 if state["ok"] else 503, "application/json", json.dumps(state).encode())
        elif path == "/live":
            silent = 0.0 if self.server.pulse is None else self.server.pulse.silent_seconds()
            is_live = silent < self.server.frozen_seconds
            self._answer(200 if is_live else 503, "application/json", json.dumps({"live": is_live}).encode())
        else:
            self._answer(404, "text/plain", b"try /ok, /live or /metrics\n")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Log nothing: scrapes are frequent."""


def _pulse_of_this_loop() -> LoopPulse | None:
    """The pulse of the running event loop; None for a process without one, which is live as long as it answers."""
    try:
        return LoopPulse(asyncio.get_running_loop())
    except RuntimeError:
        return None


@contextmanager
def serve_health(
    host: str, port: int | None, registry: CollectorRegistry, state: State, *, frozen_seconds: float = FROZEN_SECONDS
) -> Iterator[int | None]:
    """Serve during the context and yield the port; serve nothing if `port` is None. Raises CannotListen.

    `/live` is 503 once the event loop in which this is called has run no callback for `frozen_seconds`.
    """
    if port is None:
        yield None
        return
    try:
        server = _Server((host, port), registry, state, frozen_seconds)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port} for metrics: {error.strerror}") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
