"""A server of the host, for guests to try."""

from __future__ import annotations

import socketserver
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def listening() -> Iterator[int]:
    """A port of this host on which a server accepts a connection and closes it."""
    with (
        socketserver.TCPServer(("0.0.0.0", 0), socketserver.BaseRequestHandler) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        pool.submit(server.serve_forever)
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
