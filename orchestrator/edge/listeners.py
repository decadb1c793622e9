"""Listeners: uvicorn with the client certificate's identity put where the application can read it.

uvicorn does not hand the certificate over (TRAPS, TLS), so a small subclass of its protocol reads it once a connection.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from orchestrator.edge.socket_listener import BoundedWebSocketProtocol
from orchestrator.http.asgi import App
from orchestrator.http.problem_documents import MEDIA_TYPE, problem_response
from orchestrator.problems import Malformed
from orchestrator.settings import Settings

HEAD_SECONDS_MAX = 10.0
"""From the first byte of a connection or request to the end of its headers; clients that are slower are not clients."""


UNREADABLE = "the request is not HTTP/1.1: check the request line and headers for control characters"


class PromptProtocol(HttpToolsProtocol):
    """HTTP that closes a connection whose next request's headers do not arrive whole in time.

    uvicorn bounds how long a connection may idle after an answer, but neither before the first request nor in the middle
    of headers: without this, half a request holds a file descriptor for ever.
    """

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """The first request's headers are due."""
        super().connection_made(transport)
        self._expect_head()

    def on_message_begin(self) -> None:
        """Another request's headers are due. `abort` cuts the connection; closing waits for a peer that does not read."""
        super().on_message_begin()
        self.scope["state"]["abort"] = self.transport.abort
        if self._head_timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        """They have come."""
        self._forget_head()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no HTTP request (a control character in a header, say) with a problem document."""
        body = bytes(problem_response(Malformed(UNREADABLE)).body)
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (MEDIA_TYPE.encode(), len(body)) + body)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is due any more."""
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._give_up)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


class NodeProtocol(PromptProtocol):
    """HTTP over mTLS: every request's scope state carries `peer`, the verified certificate as `ssl` returns it."""

    def connection_made(self, transport: Any) -> None:
        """Read the peer certificate once; without one there is no identity and every request is refused."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls is not None else None
        self.app_state = {**self.app_state, "peer": certificate or None}


def public_server(app: App, settings: Settings) -> uvicorn.Server:
    """The public listener, which speaks WebSocket as well."""
    config = _config(app, settings, settings.public_host, settings.public_port)
    config.ws = config.ws_protocol_class = BoundedWebSocketProtocol
    config.ws_max_size = settings.notifications_message_bytes_max
    config.ws_ping_interval = settings.feed_keepalive_seconds
    config.ws_ping_timeout = settings.feed_stall_seconds
    config.ws_per_message_deflate = False  # memory for each socket, and what is secret beside what a tenant wrote
    return uvicorn.Server(config)


def metrics_server(app: App, settings: Settings, port: int) -> uvicorn.Server:
    """The metrics and health listener."""
    return uvicorn.Server(_config(app, settings, settings.metrics_host, port))


def node_server(app: App, settings: Settings) -> uvicorn.Server:
    """The node listener: a client certificate of our CA is required by TLS itself. Raises ValueError without its files."""
    files = (settings.node_tls_certificate_file, settings.node_tls_key_file, settings.node_ca_certificate_file)
    if None in files:
        raise ValueError(
            "the node listener needs BERTH_NODE_TLS_CERTIFICATE_FILE, BERTH_NODE_TLS_KEY_FILE and BERTH_NODE_CA_CERTIFICATE_FILE"
        )
    config = _config(app, settings, settings.node_host, settings.node_port)
    config.http_protocol_class = NodeProtocol
    config.http = NodeProtocol
    config.ssl_certfile, config.ssl_keyfile, config.ssl_ca_certs = (str(file) for file in files)
    config.ssl_cert_reqs = ssl.CERT_REQUIRED
    config.timeout_keep_alive = 90
    return uvicorn.Server(config)


def _config(app: App, settings: Settings, host: str, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        app, host=host, port=port, log_config=None, access_log=False, server_header=False, date_header=True,
        loop="uvloop", http=PromptProtocol, lifespan="auto", timeout_graceful_shutdown=settings.graceful_stop_seconds,
        backlog=4096, timeout_keep_alive=30, proxy_headers=False, ws="none",
    )  # fmt: skip
