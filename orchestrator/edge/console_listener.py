"""The public process's listener for agents that serve consoles: mTLS, one connection for each session.

It speaks the frames of node_agent/wire/console.py and nothing else. The identity comes from the certificate, whose node's row is
checked for each connection; which session the connection serves, from its first frame.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from functools import partial

import structlog
from pydantic import ValidationError

from berth.process.limits.source_addresses import source_key
from node_agent.wire.console import FRAME_BYTES_MAX, HELLO, ConsoleHello, FrameRefused, read_frame
from orchestrator.consoles.hub import ConsoleHub, Link
from orchestrator.consoles.metrics import LINKS
from orchestrator.database.transactions import Database, TransactionConflict
from orchestrator.edge.handshakes import HandshakeTurns, wait_for_hello, wait_readable
from orchestrator.edge.tls import ReloadedContext
from orchestrator.nodes.certificates import is_of_kind, node_identity
from orchestrator.nodes.queries import find_standing
from orchestrator.problems import Problem
from orchestrator.settings import Settings
from orchestrator.sites.identity import KIND as SITE
from orchestrator.sites.queries import find_agent_standing

log = structlog.get_logger("orchestrator.consoles")
HANDSHAKE_SECONDS_MAX = 5.0
HELLO_SECONDS_MAX = 5.0
LAST_FRAME_SECONDS_MAX = 1.0
STRANGERS_MAX = 1_024
"""Connections that have not shown a certificate yet. Beyond it the oldest of the source with most is cut off."""
STRANGERS_OF_SOURCE_MAX = 64
"""Of these those of one source. Beyond it its oldest is cut off, and no other's: a handshake takes milliseconds."""
UNCLAIMED_MAX = 64
"""Connections of nodes that have not named their session yet; beyond it they are refused."""
BACKLOG = 256
ACCEPTED_AT_ONCE_MAX = 32
PAUSE_SECONDS = 0.1
KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""A node whose machine is gone ends its sessions after 40 s, though nothing is sent."""


class ConsoleListener:
    """Accepts agents' connections until it is stopped. Raises ValueError or OSError for unusable files or addresses."""

    def __init__(self, hub: ConsoleHub, database: Database, settings: Settings) -> None:
        certificate, key = settings.console_tls_certificate_file, settings.console_tls_key_file
        cas = settings.node_ca_certificate_file
        if certificate is None or key is None or cas is None or settings.console_address is None:
            raise ValueError(
                "BERTH_CONSOLE_PORT needs BERTH_CONSOLE_ADDRESS, BERTH_CONSOLE_TLS_CERTIFICATE_FILE,"
                " BERTH_CONSOLE_TLS_KEY_FILE and BERTH_NODE_CA_CERTIFICATE_FILE"
            )
        assert settings.console_port is not None, "without a port there is no listener"
        self._tls = ReloadedContext(certificate, key, cas)
        self._hub = hub
        self._database = database.for_platform()
        self._trust_domain = settings.trust_domain
        self._where = (settings.console_host, settings.console_port)
        self._connections: set[asyncio.Task[None]] = set()
        self._strangers: dict[str, dict[asyncio.Task[None], None]] = {}  # by source, the oldest first
        self._turns = HandshakeTurns()
        self._unclaimed = 0
        self._stopped = asyncio.Event()

    async def serve(self) -> None:
        """Serve until `stop`. Raises OSError if the address cannot be used."""
        family = socket.AF_INET6 if ":" in self._where[0] else socket.AF_INET
        with socket.create_server(self._where, family=family, backlog=BACKLOG) as listening:
            listening.setblocking(False)
            accepting = asyncio.create_task(self._accept(listening))
            stopped = asyncio.create_task(self._stopped.wait())
            try:
                await asyncio.wait((accepting, stopped), return_when=asyncio.FIRST_COMPLETED)
                if accepting.done():
                    accepting.result()
            finally:
                for task in (accepting, stopped, *self._connections):
                    task.cancel()
                self._turns.close()
                await asyncio.gather(accepting, stopped, *self._connections, return_exceptions=True)

    def stop(self) -> None:
        """End every connection and accept no more."""
        self._stopped.set()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            await wait_readable(listening)
            try:
                for _ in range(ACCEPTED_AT_ONCE_MAX):
                    connection, address = listening.accept()
                    self._take(connection, address[0])
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                pass
            except OSError as error:
                log.warning("cannot_accept_agents", why=str(error))
                await asyncio.sleep(PAUSE_SECONDS)

    def _take(self, connection: socket.socket, source: str) -> None:
        key = source_key(source)
        self._make_room_for(key)
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEP_ALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        task = asyncio.create_task(self._serve(connection, key))
        self._connections.add(task)
        self._strangers.setdefault(key, {})[task] = None
        task.add_done_callback(partial(self._forget, key))

    def _make_room_for(self, source: str) -> None:
        """Cut off the oldest connection without a certificate of this source, or of that with most, at a bound."""
        crowded = self._strangers.get(source, {})
        if len(crowded) < STRANGERS_OF_SOURCE_MAX:
            if sum(map(len, self._strangers.values())) < STRANGERS_MAX:
                return
            source, crowded = max(self._strangers.items(), key=lambda each: len(each[1]))
        oldest = next(iter(crowded))
        self._admit(source, oldest)
        oldest.cancel()
        LINKS.labels("too_many").inc()

    def _admit(self, source: str, task: asyncio.Task[None]) -> None:
        """The connection is no stranger's any more."""
        strangers = self._strangers.get(source, {})
        strangers.pop(task, None)
        if not strangers:
            self._strangers.pop(source, None)

    def _forget(self, source: str, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._admit(source, task)

    async def _serve(self, connection: socket.socket, source: str) -> None:
        """One connection: handshake in the turn of its source, first frame, then as long as its session."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=4 * FRAME_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
                await wait_for_hello(connection)
                await self._turns.wait(source)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls.current(), ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX
            )
        except OSError:  # the handshake failed, took too long, or the client left
            connection.close()
            LINKS.labels("handshake").inc()
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        own = asyncio.current_task()
        assert own is not None, "a connection has a task"
        self._admit(source, own)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            outcome = await self._join(Link(reader, writer))
        except (Problem, TransactionConflict, FrameRefused, ValidationError, OSError, TimeoutError) as error:
            log.warning("console_link_refused", why=str(error) or type(error).__name__)
            outcome = "refused"
        finally:
            # A closing connection would otherwise read on, from an agent that floods, until that closes its side.
            with suppress(RuntimeError):
                transport.pause_reading()
            loop.call_later(LAST_FRAME_SECONDS_MAX, transport.abort)
            writer.close()
        LINKS.labels(outcome).inc()

    async def _join(self, link: Link) -> str:
        """Join it with its session, and return when that has ended; the outcome."""
        if self._unclaimed >= UNCLAIMED_MAX:
            return "too_many"
        self._unclaimed += 1
        try:
            is_claimed = await self._claim(link)
        finally:
            self._unclaimed -= 1
        if not is_claimed:
            return "refused"
        await link.closed.wait()
        return "served"

    async def _claim(self, link: Link) -> bool:
        """Whether its first frame names a session that its node, or its agent of a site, has a right to."""
        peer = link.writer.get_extra_info("ssl_object").getpeercert()
        of_site = is_of_kind(peer, self._trust_domain, SITE)
        identity = node_identity(peer, self._trust_domain, SITE if of_site else "node")
        async with asyncio.timeout(HELLO_SECONDS_MAX):
            first = await read_frame(link.reader)
            if first is None or first[0] != HELLO:
                return False
            hello = ConsoleHello.model_validate_json(first[1])
            if of_site:
                standing = await find_agent_standing(self._database, identity.node_id, identity.serial)
                session = await self._hub.claim_for_site(hello, standing.node_id, link)
            else:
                standing = await find_standing(self._database, identity.node_id, identity.serial)
                session = await self._hub.claim(hello, standing.node_id, link)
        if session is None:
            log.warning(
                "console_link_refused", why="no session waits for it", agent=str(standing.node_id), of_site=of_site
            )
        return session is not None
