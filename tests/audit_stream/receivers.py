"""Receivers of syslog on a real socket: TLS, TCP, a local stream, local datagrams. They can stall, and die with unread bytes."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_for

HEADER = re.compile(rb'<110>1 (\S+) (\S+) berth - audit \[meta sequenceId="(\d+)"\] (.*)\Z', re.DOTALL)
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with which closing resets the connection, as the death of a process with unread bytes does."""


@dataclass
class Receiver:
    """What arrived, in order. `reading`: cleared, it reads nothing more."""

    url: str
    kind: int = socket.SOCK_STREAM
    tls: ssl.SSLContext | None = None
    documents: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    connections: list[socket.socket] = field(default_factory=list)
    accepted: int = 0
    reading: threading.Event = field(default_factory=threading.Event)

    @property
    def sequences(self) -> list[int]:
        """The sequence of each message."""
        return [int(document["metadata"]["sequence"]) for document in self.documents]

    def await_rows(self, last: int) -> None:
        """Return when the row has arrived."""
        wait_for(lambda: last in self.sequences, f"row {last}; problems: {self.problems}")

    def reset_connections(self) -> None:
        """Die, as seen from the sender: what was not read is lost."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            with contextlib.suppress(OSError):
                connection.close()
        self.connections.clear()

    def take(self, message: bytes) -> None:
        """Parse and keep one message."""
        found = HEADER.match(message)
        if found is None:
            self.problems.append(f"no message of RFC 5424: {message[:200]!r}")
            return
        document = json.loads(found[4])
        if int(found[3]) != document["metadata"]["sequence"]:
            self.problems.append("sequenceId is another one than the row's")
        self.raw.append(message)
        self.documents.append(document)

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until the listener is closed."""
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read_frames, args=(connection,), daemon=True).start()

    def _read_frames(self, connection: socket.socket) -> None:
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            self.accepted += 1
            self.connections.append(connection)
            self.reading.wait()
            with connection.makefile("rb") as stream:
                while (length := _read_length(stream)) is not None:
                    message = stream.read(length)
                    if len(message) < length:
                        return
                    self.take(message)
                    self.reading.wait()
        except (OSError, ValueError) as error:
            self.problems.append(f"{type(error).__name__}: {error}")

    def read_datagrams(self, listener: socket.socket) -> None:
        """Keep each datagram as a message."""
        while True:
            try:
                message = listener.recv(1_048_576)
            except OSError:
                return
            if message:
                self.take(message)


def _read_length(stream: Any) -> int | None:
    """The octet count of the next frame; None at the end."""
    digits = b""
    while (sign := stream.read(1)) not in (b"", b" "):
        digits += sign
    return int(digits) if digits else None


@contextmanager
def tcp_receiver(tls: ssl.SSLContext | None = None, port: int = 0, *, reads: bool = True) -> Iterator[Receiver]:
    """A receiver on loopback, over TLS if a context is given."""
    with socket.create_server(("127.0.0.1", port), reuse_port=False) as listener:
        scheme, host = ("tcp", "127.0.0.1") if tls is None else ("tls", "localhost")
        receiver = Receiver(f"{scheme}://{host}:{listener.getsockname()[1]}", tls=tls)
        if reads:
            receiver.reading.set()
        threading.Thread(target=receiver.serve, args=(listener,), daemon=True).start()
        yield receiver
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    receiver.reading.set()
    receiver.reset_connections()


@contextmanager
def local_receiver(path: Path, kind: int) -> Iterator[Receiver]:
    """A receiver on a local socket: a stream, or datagrams as on /dev/log."""
    with socket.socket(socket.AF_UNIX, kind) as listener:
        listener.bind(str(path))
        receiver = Receiver(f"unix://{path}", kind)
        receiver.reading.set()
        if kind == socket.SOCK_STREAM:
            listener.listen()
        serve = receiver.serve if kind == socket.SOCK_STREAM else receiver.read_datagrams
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield receiver
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
