"""Accepts connections, those too that begin with a TLS handshake or a PROXY header, within the bounds of all connections.

uvloop's own servers accept one connection in each turn of the event loop, so that 500 clients that connect to a busy process
wait for seconds. And they hand a connection over once its handshake is done: until then it is counted by nothing, and all
share one context.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import structlog
import uvicorn

from berth.process.limits.source_addresses import canonical
from orchestrator.edge.connection_counts import Accepted, ConnectionCounts, Source
from orchestrator.edge.connection_parts import ListenerState
from orchestrator.edge.connections import BoundedHttpProtocol
from orchestrator.edge.ending.listening_sockets import drop_new
from orchestrator.edge.handshakes import HandshakeTurns, wait_for_hello, wait_readable
from orchestrator.edge.proxy_protocol import HeaderRefused, read_source
from orchestrator.edge.socket_listener import BoundedWebSocketProtocol
from orchestrator.edge.sources import TrustedProxies
from orchestrator.edge.tls import ReloadedContext
from orchestrator.http import metrics

log = structlog.get_logger("orchestrator.api")
HANDSHAKE_SECONDS_MAX = 5.0
"""For the PROXY header, and for the TLS handshake after it."""
PARKED_SECONDS_MAX = 25.0
"""How much longer a connection of a flooding address may wait for its turn."""
LAST_SECONDS = 0.1
"""Least time of a handshake that has begun."""
UNDER_WAY_SECONDS = 0.1
"""How long a server that stops accepts connections whose first packet was answered before: more than a round trip."""
HAND_OVER_SECONDS_MAX = 1.0
"""How long a server that stops waits for handshakes that have begun."""
PAUSE_SECONDS = 0.1
"""Between attempts to accept while there are no file descriptors."""
ACCEPTED_AT_ONCE_MAX = 32
"""Connections that are accepted in one turn of the event loop: the kernel's queue is in order of arrival, not of source."""


class AcceptingServer(uvicorn.Server):
    """A uvicorn server whose connections are accepted here. `tls` None: plain HTTP; `header_from`: senders of PROXY headers."""

    def __init__(
        self,
        config: uvicorn.Config,
        counts: ConnectionCounts,
        *,
        tls: ReloadedContext | None,
        header_from: TrustedProxies | None,
    ) -> None:
        super().__init__(config)
        self._counts = counts
        self._tls = tls
        self._header_from = header_from
        self._turns = HandshakeTurns()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._closing: set[BoundedHttpProtocol] = set()
        self.server_state: ListenerState = ListenerState()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Bind and accept. Ends the process as uvicorn does where the address is in use."""
        self._listening = self.config.bind_socket()
        self._listening.setblocking(False)
        self._listening.listen(self.config.backlog)
        await super().startup(sockets=[])
        self._accepting = asyncio.create_task(self._accept(self._listening))
        self._accepting.add_done_callback(_died)

    async def stop_accepting(self) -> None:
        """Accept what has connected, and no more; from now on each response ends its connection."""
        self.server_state.stopping = True
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedHttpProtocol):  # a socket gets its last message first
                connection.shutdown()
        listening, self._listening = self._listening, None
        if listening is None or self._accepting is None:
            return
        drop_new(listening)
        await asyncio.sleep(UNDER_WAY_SECONDS)
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        with suppress(OSError):
            while True:
                self._accept_one(listening)
        listening.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and end what has not begun; then as uvicorn does."""
        await self.stop_accepting()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=HAND_OVER_SECONDS_MAX)
        for task in self._tasks:
            task.cancel()
        self._turns.close()
        await super().shutdown(sockets)

    def cut_closing(self) -> None:
        """End each connection that was closing at the last call too, with nothing left to send.

        With TLS it would wait for the end that the peer sends, and an idle peer does not read.
        """
        closing = {
            connection
            for connection in self.server_state.connections
            if isinstance(connection, BoundedHttpProtocol)
            and connection.transport.is_closing()
            and not connection.transport.get_write_buffer_size()
        }
        for connection in closing & self._closing:
            connection.abort()
        self._closing = closing

    def cut_streams(self) -> None:
        """End each stream and socket whose client has not read its last message."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedWebSocketProtocol) or (
                isinstance(connection, BoundedHttpProtocol) and connection.is_streaming()
            ):
                connection.abort()

    def _run(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            await wait_readable(listening)
            try:
                for _ in range(ACCEPTED_AT_ONCE_MAX):
                    self._accept_one(listening)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                pass
            except OSError as error:
                log.warning("cannot accept connections", why=str(error))
                await asyncio.sleep(PAUSE_SECONDS)

    def _accept_one(self, listening: socket.socket) -> None:
        """Accept one connection. Raises `BlockingIOError` if there is none."""
        connection, address = listening.accept()
        self._take(connection, (address[0], address[1]))

    async def _serve_plain(self, connection: socket.socket) -> None:
        """Hand over a connection that begins with a request; its protocol counts it, and says so where it is one too many."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        except OSError:  # the client left
            connection.close()

    def _protocol(self, accepted: Accepted | None = None) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state, accepted=accepted
        )
        return made

    def _take(self, connection: socket.socket, client: Source) -> None:
        """Count a connection and admit it; one beyond a bound ends here, at the cost of no task: a flood opens many."""
        if self._tls is None and self._header_from is None:
            connection.setblocking(False)
            self._run(self._serve_plain(connection))
            return
        try:
            uncount = self._count(client[0], per_source=self._header_from is None)
        except _Refused as refused:
            connection.close()
            metrics.CONNECTIONS_REFUSED.labels(reason=str(refused)).inc()
            return
        connection.setblocking(False)
        self._run(self._admit(connection, client, uncount))

    async def _admit(self, connection: socket.socket, client: Source, counted: Callable[[], None]) -> None:
        """Hand a counted connection over when its header and its handshake are done."""
        uncount = counted
        handed_over = False
        try:
            if self._header_from is not None:
                client = await self._client_behind(connection, client, self._header_from)
                uncount()
                uncount = _nothing  # for a moment it is not counted, and nothing else runs in that moment
                uncount = self._count(client[0], per_source=True)
            accepted = Accepted(client, uncount, partial(self._turns.slow_down, client[0]))
            await self._hand_over(connection, accepted)
            handed_over = True
        except _Refused as refused:
            metrics.CONNECTIONS_REFUSED.labels(reason=str(refused)).inc()
        except OSError:  # the handshake failed, took too long, or the client left
            metrics.CONNECTIONS_REFUSED.labels(reason="handshake").inc()
        finally:
            if not handed_over:
                connection.close()
                uncount()

    def _count(self, source: str, *, per_source: bool) -> Callable[[], None]:
        uncount = self._counts.add(source, per_source=per_source)
        if uncount is None:
            raise _Refused("too_many")
        return uncount

    async def _client_behind(self, connection: socket.socket, client: Source, proxies: TrustedProxies) -> Source:
        """The address in the PROXY header, which only a trusted proxy may send."""
        peer = canonical(client[0])
        if peer is None or not proxies.trusts(peer):
            raise _Refused("not_a_proxy")
        loop = asyncio.get_running_loop()

        async def read(count: int) -> bytes:
            received = b""
            while len(received) < count:
                piece = await loop.sock_recv(connection, count - len(received))
                if not piece:
                    raise EOFError
                received += piece
            return received

        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
                return await read_source(read) or client
        except (HeaderRefused, EOFError, TimeoutError) as error:
            raise _Refused("proxy_header") from error

    async def _hand_over(self, connection: socket.socket, accepted: Accepted) -> None:
        loop = asyncio.get_running_loop()
        protocol = partial(self._protocol, accepted)
        if self._tls is None:
            await loop.connect_accepted_socket(protocol, connection)
            return
        deadline = loop.time() + HANDSHAKE_SECONDS_MAX
        if self._turns.is_slow(accepted.client[0]):
            # Waiting is cheaper than another connection. The random part spreads the ends of those that were opened together.
            deadline += random.uniform(0.0, PARKED_SECONDS_MAX)
        async with asyncio.timeout_at(deadline):
            await wait_for_hello(connection)
            await self._turns.wait(accepted.client[0])
        seconds = min(max(deadline - loop.time(), LAST_SECONDS), HANDSHAKE_SECONDS_MAX)
        await loop.connect_accepted_socket(protocol, connection, ssl=self._tls.current(), ssl_handshake_timeout=seconds)


def _nothing() -> None:
    pass


class _Refused(Exception):
    """A connection is ended before it is handed over; the text is the metric's reason."""


def _died(accepting: asyncio.Task[None]) -> None:
    """End the process: it would accept nothing any more, and say nothing of it."""
    if not accepting.cancelled() and accepting.exception() is not None:
        log.critical("connections are no longer accepted; ending the process", exc_info=accepting.exception())
        raise SystemExit(1)
