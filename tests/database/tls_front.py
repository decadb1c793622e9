"""A TLS end before a real PostgreSQL: the server of the tests is built without OpenSSL.

It does what a server with `ssl = on` does: it answers the SSLRequest (PostgreSQL documentation, "Message Flow", 54.2.10) with
`S`, shakes hands, and passes everything on. Without a certificate it answers `N`, as a server without TLS does, and
records every byte that the client sends afterwards.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SSL_REQUEST = bytes.fromhex("0000000804d2162f")
CHUNK_BYTES = 65_536


class TlsFront:
    """Listens on a free loopback port; `in_clear` holds what clients sent outside TLS after the SSLRequest."""

    def __init__(self, server_port: int, context: ssl.SSLContext | None) -> None:
        self.in_clear = b""
        self._server_port = server_port
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            if client.recv(len(SSL_REQUEST), socket.MSG_WAITALL) != SSL_REQUEST:
                raise ConnectionError("the first message is no SSLRequest")
            if self._context is None:
                client.sendall(b"N")
                self.in_clear += client.recv(CHUNK_BYTES)
                return
            client.sendall(b"S")
            with (
                self._context.wrap_socket(client, server_side=True) as encrypted,
                socket.create_connection(("127.0.0.1", self._server_port)) as server,
            ):
                threading.Thread(target=_pass_on, args=(server, encrypted), daemon=True).start()
                _pass_on(encrypted, server)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(CHUNK_BYTES):
            target.sendall(content)
        target.shutdown(socket.SHUT_RDWR)


@contextmanager
def tls_front(server_port: int, context: ssl.SSLContext | None) -> Iterator[TlsFront]:
    """A running front; `context` None: it answers as a server without TLS."""
    front = TlsFront(server_port, context)
    try:
        yield front
    finally:
        front.close()
