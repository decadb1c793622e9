"""Endpoints that webhooks are sent to: real servers with a prepared behaviour per request."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson

Behaviour = Callable[[socket.socket], None]


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    line: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def message_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def document(self) -> Any:
        return orjson.loads(self.body)


def answers(status: int, *, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Behaviour:
    """Answer so, properly."""
    lines = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    raw = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    return lambda link: link.sendall(raw)


def closes(link: socket.socket) -> None:
    """Say nothing, and go."""


def closes_midway(link: socket.socket) -> None:
    """Go in the middle of the answer's head."""
    link.sendall(b"HTTP/1.1 200 O")


def talks_nonsense(link: socket.socket) -> None:
    """No HTTP."""
    link.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")


class Receiver:
    """A server; requests get the behaviours in order, the last one for ever."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self.stopping = threading.Event()
        self.taken = 0
        self.most_at_once = 0
        self._at_once = 0
        self._behaviours: list[Behaviour] = [answers(204)]
        self._lock = threading.Lock()
        self._tls = tls
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/hook?token=s3cret"

    def will(self, *behaviours: Behaviour) -> None:
        """From now on."""
        with self._lock:
            self._behaviours = list(behaviours)

    def hangs(self, link: socket.socket) -> None:
        """Say nothing until the end."""
        self.stopping.wait(60)

    def trickles(self, link: socket.socket) -> None:
        """A head that never ends, byte after byte."""
        link.sendall(b"HTTP/1.1 200 OK\r\nx: ")
        while not self.stopping.wait(0.05):
            link.sendall(b"y")

    def trickles_body(self, link: socket.socket) -> None:
        """A head at once, and then a body that never ends."""
        link.sendall(b"HTTP/1.1 500 No\r\ncontent-length: 1000000\r\n\r\n")
        while not self.stopping.wait(0.02):
            link.sendall(b"z")

    def floods(self, link: socket.socket) -> None:
        """Ten megabytes; `taken` counts the bytes that were sent."""
        link.sendall(b"HTTP/1.1 500 No\r\ncontent-length: 10000000\r\n\r\n")
        for _ in range(1_000):
            link.sendall(b"\x00\xff" * 5_000)
            self.taken += 10_000

    def floods_heads(self, link: socket.socket) -> None:
        """Answers of 1xx without end."""
        while not self.stopping.is_set():
            link.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000)
            self.taken += 28_000

    def floods_fields(self, link: socket.socket) -> None:
        """A head of fields without end."""
        link.sendall(b"HTTP/1.1 200 OK\r\n")
        while not self.stopping.is_set():
            link.sendall(b"x-field: y\r\n" * 1_000)
            self.taken += 12_000

    def stop(self) -> None:
        self.stopping.set()
        self._socket.close()

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                link, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with contextlib.suppress(OSError), link:
            link.settimeout(30)
            secured = self._tls.wrap_socket(link, server_side=True) if self._tls else link
            with secured:
                received = _read(secured)
                with self._lock:
                    self.received.append(received)
                    self._at_once += 1
                    self.most_at_once = max(self.most_at_once, self._at_once)
                    behave = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
                try:
                    behave(secured)
                finally:
                    with self._lock:
                        self._at_once -= 1


def _read(link: socket.socket) -> Received:
    raw = b""
    while b"\r\n\r\n" not in raw:
        part = link.recv(65_536)
        if not part:
            raise OSError("the connection was closed before a request")
        raw += part
    head, _, body = raw.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    while len(body) < int(headers.get("content-length", "0")):
        body += link.recv(65_536)
    return Received(line, headers, body)


@contextmanager
def receiving(number: int = 1, *, tls: ssl.SSLContext | None = None) -> Iterator[Sequence[Receiver]]:
    """So many servers."""
    receivers = [Receiver(tls=tls) for _ in range(number)]
    try:
        yield receivers
    finally:
        for receiver in receivers:
            receiver.stop()
