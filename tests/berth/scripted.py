"""A real HTTP server on a real socket that returns prepared responses in order and records the requests."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Reply:
    """One answer. `lost`: the request is read and the connection closed without an answer."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    lost: bool = False


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any

    @property
    def key(self) -> str | None:
        """Its idempotency key."""
        return self.headers.get("idempotency-key")


LOST = Reply(lost=True)


def problem(status: int, code: str, *, retry_after: str | None = None, **members: Any) -> Reply:
    """A problem document as docs/reference/http-api.md has it."""
    body = {"status": status, "code": code, "detail": f"it is {code}", "outcome": "not_done", **members}
    headers = {"Content-Type": "application/problem+json"}
    return Reply(status, body, headers | ({} if retry_after is None else {"Retry-After": retry_after}))


class ScriptedServer:
    """Answers each request with the next reply; the last one is repeated for ever.

    `/ok` is answered beside the script, with the time of `clock`, as every other answer is; without one, with no time.
    """

    def __init__(self, replies: Sequence[Reply], clock: Callable[[], float] | None = None) -> None:
        self._replies = list(replies)
        self._clock = clock
        self.asked: list[Asked] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def keys(self) -> list[str | None]:
        """The idempotency keys of all requests, in order."""
        return [asked.key for asked in self.asked]

    def __enter__(self) -> Self:
        """Start answering."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            method, path, _ = stream.readline().decode().split()
            headers = {}
            while line := stream.readline().decode().strip():
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            content = stream.read(int(headers.get("content-length", 0)))
        reply = Reply()
        if path != "/ok":
            reply = self._replies[min(len(self.asked), len(self._replies) - 1)]
            self.asked.append(Asked(method, path, headers, json.loads(content) if content else None))
        if reply.lost:
            return
        body = b"" if reply.body is None else json.dumps(reply.body).encode()
        head = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
        if self._clock is not None:
            head["Date"] = formatdate(self._clock(), usegmt=True)
        lines = [f"{name}: {value}" for name, value in (head | reply.headers).items()]
        lines.insert(0, f"HTTP/1.1 {reply.status} -")
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
