"""A listener over a small application in a thread, and raw connections to it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from berth.local.servers import free_port
from orchestrator.edge import listeners
from orchestrator.edge.edge import Edge
from orchestrator.http.asgi import Receive, Scope, Send
from orchestrator.http.waiting_requests import PLACE
from orchestrator.settings import Settings
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for

BIG_BYTES = 32 * 1024 * 1024
"""More than the buffers between a server and a client that does not read."""

UPGRADE = (
    "upgrade: websocket",
    "connection: upgrade",
    "sec-websocket-version: 13",
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
)
"""The fields of a request for a WebSocket."""


@dataclass
class Listener:
    """A running listener. `release` lets the requests to `/waits` and `/held` finish.

    `held_bytes` returns what has arrived of the body of the last request to `/held`; `received`: how much it read in the end.
    """

    server: uvicorn.Server
    port: int
    release: threading.Event = field(default_factory=threading.Event)
    waiting: int = 0
    held_bytes: Callable[[], int] = lambda: 0
    received: int = 0
    _loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop, once it has served a request."""
        with self.connect() as connection:
            connection.sendall(get("/"))
            connection.recv(1_000)
        assert self._loop is not None
        return self._loop

    def connect(self) -> socket.socket:
        """A new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_SECONDS_MAX)

    def wait_until_empty(self) -> None:
        """Return when the server has no connection."""
        wait_for(lambda: not self.server.server_state.connections, "the connections to end")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`/waits`, `/held` (waits before its body), `/big`, `/source`, `/reads` and `/v1/subscribe` (the body).

        Anything else: an empty response at once.
        """
        if scope["type"] == "websocket":
            await self._talk(scope, receive, send)
        if scope["type"] != "http":
            return
        self._loop = asyncio.get_running_loop()
        body = b""
        if scope["path"] == "/waits":
            self.waiting += 1
            await asyncio.to_thread(self.release.wait)
        elif scope["path"] == "/held":
            await self._hold(scope, receive)
        elif scope["path"] == "/big":
            body = bytes(BIG_BYTES)
        elif scope["path"] == "/source":
            body = str(scope["state"]["source"]).encode()
        elif scope["path"] in ("/reads", "/v1/subscribe"):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _hold(self, scope: Scope, receive: Receive) -> None:
        """Wait as a request does that has to wait for its turn, and read the body then."""
        place = scope["state"][PLACE]
        place.begin_wait()
        self.held_bytes = scope["state"]["hold_body"]
        self.waiting += 1
        await asyncio.to_thread(self.release.wait)
        place.end_wait()
        more = True
        while more:
            message = await receive()
            self.received += len(message.get("body", b""))
            more = message.get("more_body", False)

    async def _talk(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A socket that says where it comes from and stays open."""
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": str(scope["state"]["source"])})
        while (await receive())["type"] != "websocket.disconnect":
            pass


@contextmanager
def listening(
    in_flight_max: int = 1_000,
    connections_per_source_max: int = 0,
    body_seconds_max: float = 10.0,
    **settings_of_it: Any,
) -> Iterator[Listener]:
    """A public listener behind the edge, with these bounds and settings."""
    settings = Settings(
        database_url="postgresql://absent@127.0.0.1:1/none",
        public_port=free_port(),
        connections_per_source_max=connections_per_source_max,
        **settings_of_it,
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await edge(scope, receive, send)

    listener = Listener(listeners.public_server(app, settings), settings.public_port)
    edge = Edge(
        listener,
        zone="public",
        body_bytes_max=262_144,
        in_flight_max=in_flight_max,
        body_seconds_max=body_seconds_max,
        proxies=listeners.trusted_proxies(settings),
        hsts_seconds=settings.hsts_seconds,
    )
    thread = threading.Thread(target=listener.server.run)
    thread.start()
    try:
        wait_for(lambda: listener.server.started, "the listener")
        yield listener
    finally:
        listener.release.set()
        listener.server.should_exit = True
        thread.join()


def received_until_closed(connection: socket.socket) -> bytes:
    """Everything that comes before the server ends the connection."""
    received = b""
    try:
        while chunk := connection.recv(65_536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def get(path: str, *fields: str) -> bytes:
    """A request without a body."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: here", *fields, "", ""]).encode()
