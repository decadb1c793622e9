"""A real HTTP server on a real socket that answers as a test tells it, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Scripted:
    """One answer; `hang_up` closes the connection after the request was read, as a server that dies would."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    hang_up: bool = False


@dataclass(frozen=True)
class Asked:
    """One request as the server saw it."""

    method: str
    path: str
    key: str | None
    body: Any


class ScriptedServer:
    """Answers in order; the last answer is repeated."""

    def __init__(self, answers: list[Scripted]) -> None:
        self.answers = answers
        self.asked: list[Asked] = []
        self.lock = threading.Lock()
        self.address = ""

    def take(self, asked: Asked) -> Scripted:
        """Remember a request and choose its answer."""
        with self.lock:
            self.asked.append(asked)
            return self.answers[min(len(self.asked), len(self.answers)) - 1]


@contextmanager
def serving(*answers: Scripted) -> Iterator[ScriptedServer]:
    """A server that runs until the block ends."""
    script = ScriptedServer(list(answers))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(sent) if sent else None
            answer = script.take(Asked(self.command, self.path, self.headers.get("Idempotency-Key"), body))
            if answer.hang_up:
                self.close_connection = True
                return
            content = b"" if answer.body is None else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(content)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Tests read `asked`, not a log."""

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
