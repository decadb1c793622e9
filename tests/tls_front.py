"""A TLS end before a real server that has none: PostgreSQL built without OpenSSL, Temporal's development server."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

SSL_REQUEST = bytes.fromhex("0000000804d2162f")
CHUNK_BYTES = 65_536


class TlsFront:
    """Listens on a free loopback port, shakes hands and passes everything on. With `context` None it has no TLS.

    `in_clear`: what clients sent to a front without TLS. `received`: what clients sent through TLS. `peers`: the clients'
    certificates, as `SSLSocket.getpeercert` returns them.
    """

    def __init__(self, server_port: int, context: ssl.SSLContext | None) -> None:
        self.in_clear = b""
        self.received = b""
        self.peers: list[dict[str, Any]] = []
        self._server_port = server_port
        self._context = context
        self._lock = threading.Lock()
        self._revoked: set[str] = set()
        self._clients: list[tuple[str, ssl.SSLSocket]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listening.close()

    def revoke(self, serial: str) -> None:
        """End every connection of the client certificate with this serial number, and accept no other."""
        with self._lock:
            self._revoked.add(serial)
            ended = [client for found, client in self._clients if found == serial]
        for client in ended:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _admit(self, client: ssl.SSLSocket) -> None:
        if peer := client.getpeercert():
            serial = str(peer["serialNumber"])
            with self._lock:
                if serial in self._revoked:
                    raise ConnectionError("this client certificate was revoked")
                self.peers.append(peer)
                self._clients.append((serial, client))

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            self._agree(client)
            if self._context is None:
                self.in_clear += client.recv(CHUNK_BYTES)
                return
            with (
                self._context.wrap_socket(client, server_side=True) as encrypted,
                socket.create_connection(("127.0.0.1", self._server_port)) as server,
            ):
                self._admit(encrypted)
                threading.Thread(target=_pass_on, args=(server, encrypted), daemon=True).start()
                self._pass_to(server, encrypted)

    def _agree(self, client: socket.socket) -> None:
        """What precedes the handshake: nothing."""

    def _pass_to(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while content := client.recv(CHUNK_BYTES):
                self.received += content
                server.sendall(content)
            server.shutdown(socket.SHUT_RDWR)


class PostgresTlsFront(TlsFront):
    """Does what a PostgreSQL with `ssl = on` does (PostgreSQL documentation, "Message Flow", 54.2.10): it answers the
    SSLRequest with `S`, and without a certificate with `N`.
    """

    def _agree(self, client: socket.socket) -> None:
        if client.recv(len(SSL_REQUEST), socket.MSG_WAITALL) != SSL_REQUEST:
            raise ConnectionError("the first message is no SSLRequest")
        client.sendall(b"N" if self._context is None else b"S")


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(CHUNK_BYTES):
            target.sendall(content)
        target.shutdown(socket.SHUT_RDWR)


@contextmanager
def tls_front(server_port: int, context: ssl.SSLContext | None, kind: type[TlsFront] = TlsFront) -> Iterator[TlsFront]:
    """A running front; `context` None: it answers as a server without TLS."""
    front = kind(server_port, context)
    try:
        yield front
    finally:
        front.close()
