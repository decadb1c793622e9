"""A TCP proxy that ends a connection at a chosen byte of one HTTP exchange, and lets every other byte through.

`tests/proxy.py` holds bytes back or resets at a moment; this one cuts at a place: so many bytes of the request's head or
body have reached the server, or so many of the answer's the client, and then both connections end. Content comes with a
length, as Berth and its client send it. Call from any thread.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Self

READ_BYTES = 65_536
ANSWER_SECONDS_MAX = 30.0


class Place(StrEnum):
    """Where the exchange is cut."""

    BEFORE = "before the request"
    IN_HEAD = "inside the request's head"
    IN_BODY = "inside the request's body"
    AFTER_REQUEST = "after the request, whatever comes of it"
    BEFORE_ANSWER = "when the answer is there, and none of it has passed"
    IN_ANSWER_HEAD = "inside the answer's head"
    IN_ANSWER_BODY = "inside the answer's body"
    AFTER = "after the answer"


@dataclass(frozen=True)
class Cut:
    """A place, and how far into that part: 0 before its first byte but one, 1 before its last. `reset`: RST, else FIN."""

    place: Place
    share: float = 0.5
    reset: bool = False

    def __str__(self) -> str:
        """For a person."""
        return f"{self.place} at {self.share:g}, {'RST' if self.reset else 'FIN'}"


_SHARES = {place: (0.0, 0.5, 1.0) if "inside" in place else (0.5,) for place in Place}
CUTS = tuple(Cut(place, share, reset=share == 0.5) for place, shares in _SHARES.items() for share in shares) + tuple(
    Cut(place, reset=False) for place in Place
)
"""Every place, at its first byte, in the middle and at its last, ended in either way."""


@dataclass(frozen=True)
class Message:
    """One request or answer, whole."""

    head: bytes
    body: bytes

    @property
    def first_line(self) -> str:
        """The request line, or the status line."""
        return self.head.split(b"\r\n", 1)[0].decode()

    def header(self, name: str) -> str | None:
        """One header's value."""
        for line in self.head.decode().split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name:
                return value.strip()
        return None


@dataclass
class Plan:
    """What is cut: the next `times` requests with this method. `keys` are those that came with it, cut or not."""

    cut: Cut | None = None
    method: str = "POST"
    times: int = 0
    keys: list[str | None] = field(default_factory=list)
    made: list[Cut] = field(default_factory=list)


class CuttingProxy:
    """A proxy that listens on a free port for one server of this machine."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._plan = Plan()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        """Start listening."""
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening; connections end with their clients."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()

    @contextmanager
    def cutting(self, cut: Cut, *, times: int = 1) -> Iterator[Plan]:
        """The next writes are cut so often, for the length of the context."""
        self._plan = Plan(cut, times=times)
        try:
            yield self._plan
        finally:
            self._plan = Plan()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._server_port), ANSWER_SECONDS_MAX)
        with client, server, suppress(OSError):
            while (request := _read(client)) is not None:
                cut = self._cut_of(request)
                if cut is not None:
                    _exchange_cut(client, server, request, cut)
                    _end(client, cut)
                    _end(server, cut)
                    return
                server.sendall(request.head + request.body)
                answer = _read(server)
                if answer is None:
                    return
                client.sendall(answer.head + answer.body)

    def _cut_of(self, request: Message) -> Cut | None:
        plan = self._plan
        if not request.first_line.startswith(f"{plan.method} "):
            return None
        plan.keys.append(request.header("idempotency-key"))
        if plan.cut is None or len(plan.made) >= plan.times:
            return None
        plan.made.append(plan.cut)
        return plan.cut


def _exchange_cut(client: socket.socket, server: socket.socket, request: Message, cut: Cut) -> None:
    """The part of the exchange before the cut."""
    if cut.place is Place.BEFORE:
        return None
    if cut.place is Place.IN_HEAD:
        return server.sendall(_part(request.head, cut.share))
    if cut.place is Place.IN_BODY:
        return server.sendall(request.head + _part(request.body, cut.share))
    server.sendall(request.head + request.body)
    if cut.place is Place.AFTER_REQUEST:
        return None
    answer = _read(server)
    assert answer is not None, "the server ends no connection first"
    if cut.place is Place.IN_ANSWER_HEAD:
        client.sendall(_part(answer.head, cut.share))
    if cut.place is Place.IN_ANSWER_BODY:
        client.sendall(answer.head + _part(answer.body, cut.share))
    if cut.place is Place.AFTER:
        client.sendall(answer.head + answer.body)
    return None


def _part(whole: bytes, share: float) -> bytes:
    """At least one byte where there are two, and never all."""
    most = len(whole) - 1
    return whole[: min(most, max(1, round(most * share)))]


def _end(connection: socket.socket, cut: Cut) -> None:
    if cut.reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _read(connection: socket.socket) -> Message | None:
    """The next message, or None at the connection's end."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(READ_BYTES)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    message = Message(head + b"\r\n\r\n", body)
    length = int(message.header("content-length") or 0)
    while len(body) < length:
        more = connection.recv(READ_BYTES)
        if not more:
            return None
        body += more
    return Message(message.head, body)
