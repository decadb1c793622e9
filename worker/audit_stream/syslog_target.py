"""Syslog as a target (RFC 5424): over TLS (RFC 5425), TCP with octet counting (RFC 6587), or a local socket.

Syslog acknowledges nothing. A batch is taken as received when the kernel of the receiver has acknowledged its last byte and the
connection has stayed open for `settle_seconds`: a receiver that dies with unread bytes resets the connection, and these rows
are sent again. UDP is not offered: it loses messages without a sign.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import socket
import ssl
import struct
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from orchestrator.audit.list_store import Entry
from worker.audit_stream.messages import octet_counted, syslog_message, usable_hostname
from worker.audit_stream.targets import TargetUnavailable

DEFAULT_PORTS: Final = {"tls": 6514, "tcp": 601}
POLL_SECONDS: Final = 0.005
DATAGRAM_BUFFER_BYTES: Final = 1_048_576
KEEPALIVE_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class SyslogTarget:
    """A receiver: `tls://host:port`, `tcp://host:port` or `unix:///path`. Durations are seconds."""

    url: str
    hostname: str
    message_bytes_max: int
    timeout_seconds: float
    settle_seconds: float
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    name: str = "syslog"

    async def connect(self) -> SyslogConnection:
        """A connection. Raises `TargetUnavailable`."""
        try:
            found = await asyncio.to_thread(self._connect)
        except ssl.SSLError as error:
            raise TargetUnavailable("tls", f"TLS with the syslog receiver failed: {error.reason or error}") from error
        except (OSError, ValueError) as error:
            raise TargetUnavailable("connect", f"the syslog receiver cannot be reached: {error}") from error
        return SyslogConnection(self, found)

    def _connect(self) -> socket.socket:
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return _local(unquote(parts.path), self.timeout_seconds)
        assert parts.hostname is not None, "the settings require a host"
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        plain = socket.create_connection((parts.hostname, port), self.timeout_seconds)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if parts.scheme == "tcp":
            return plain
        try:
            return self._context().wrap_socket(plain, server_hostname=parts.hostname)
        except BaseException:
            plain.close()
            raise

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file)
        return context


class SyslogConnection:
    """One connection. Its calls block in a thread, each for `timeout_seconds` at most."""

    def __init__(self, target: SyslogTarget, connected: socket.socket) -> None:
        self._target = target
        self._socket = connected
        self._datagrams = connected.type == socket.SOCK_DGRAM
        self._hostname = usable_hostname(target.hostname)

    async def send(self, rows: Sequence[Entry]) -> None:
        """Send all rows; return when the receiver's kernel has them. Raises `TargetUnavailable`."""
        messages = [syslog_message(row, self._hostname, self._target.message_bytes_max) for row in rows]
        await self._in_thread(self._send, messages)

    async def require_open(self) -> None:
        """Raise `TargetUnavailable` if the receiver has ended the connection."""
        await self._in_thread(self._require_open)

    async def close(self) -> None:
        """End the connection, also under a call that waits in its thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._socket.close()

    async def _in_thread(self, call: object, *arguments: object) -> None:
        assert callable(call)
        try:
            await asyncio.to_thread(call, *arguments)
        except (OSError, ValueError) as error:
            raise TargetUnavailable(
                "lost", f"the connection to the syslog receiver was lost: {_words(error)}"
            ) from error

    def _send(self, messages: Sequence[bytes]) -> None:
        deadline = time.monotonic() + self._target.timeout_seconds
        self._require_open()
        self._socket.settimeout(self._target.timeout_seconds)
        if self._datagrams:
            for message in messages:
                self._socket.send(message)
            return
        self._socket.sendall(b"".join(map(octet_counted, messages)))
        while _unacknowledged(self._socket):
            if time.monotonic() > deadline:
                raise TimeoutError("it acknowledges no more bytes")
            time.sleep(POLL_SECONDS)
        self._require_open()

    def _require_open(self) -> None:
        if self._datagrams:
            return
        self._socket.settimeout(0)
        try:
            # A receiver of syslog sends nothing; what it sends all the same is dropped.
            while self._socket.recv(4_096):
                continue
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        raise ConnectionResetError(errno.ECONNRESET, "the receiver ended it")


def _local(path: str, timeout_seconds: float) -> socket.socket:
    """A datagram socket, as /dev/log is, else a stream."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        made = socket.socket(socket.AF_UNIX, kind)
        made.settimeout(timeout_seconds)
        try:
            if kind == socket.SOCK_DGRAM:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, DATAGRAM_BUFFER_BYTES)
            made.connect(path)
        except OSError as error:
            made.close()
            if kind == socket.SOCK_DGRAM and error.errno == errno.EPROTOTYPE:
                continue
            raise
        return made
    raise OSError(errno.EPROTOTYPE, "it is neither a datagram nor a stream socket")


def _unacknowledged(connected: socket.socket) -> int:
    """Bytes that were written and not acknowledged: SIOCOUTQ of Linux; of a local stream, bytes that were not read."""
    counted = fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))
    (number,) = struct.unpack("i", counted)
    return int(number)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
