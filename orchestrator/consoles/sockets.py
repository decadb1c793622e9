"""One attached console: pumps between a tenant's WebSocket and the connection of the node's agent, within bounds.

Neither side is read while the other does not take what was read, so a session holds at most a few frames. The agent drops output
that finds no room, so that the guest does not wait for a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import structlog
from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from node_agent.wire.console import (
    DATA,
    DROPPED,
    END,
    FRAME_BYTES_MAX,
    ConsoleEnd,
    FrameRefused,
    count_of,
    frame,
    read_frame,
)
from node_agent.wire.fields import INTEGER_MAX
from orchestrator.consoles import messages, metrics
from orchestrator.consoles.hub import Link, Session
from orchestrator.consoles.pace import Pace
from orchestrator.consoles.rules import EndReason, reason_of_agent
from orchestrator.consoles.settings import ConsoleLimits
from orchestrator.http.sockets.credentials import until_refused

log = structlog.get_logger("orchestrator.consoles")
CLOSE_SECONDS_MAX = 2.0
"""Statuses of a check whose credential gives no right any more, a key or a token."""


class ConsoleSocket:
    """Serves one accepted socket. `recheck` raises when its credential is no longer valid."""

    def __init__(
        self, socket: WebSocket, session: Session, limits: ConsoleLimits, recheck: Callable[[], Awaitable[object]]
    ) -> None:
        self._socket = socket
        self._session = session
        self._limits = limits
        self._recheck = recheck
        self._loop = asyncio.get_running_loop()
        self._began = self._last = self._loop.time()

    async def serve(self) -> None:
        """Serve until the session ends, then say why and close."""
        works = (self._from_tenant(), self._from_agent(), self._watch_credential(), self._watch_time())
        tasks = [asyncio.create_task(work) for work in works]
        for task in tasks:
            task.add_done_callback(self._note_end)
        try:
            reason = await asyncio.shield(self._session.ended)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._say_end(reason)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """End the session if one of its tasks failed."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("console_failed", exc_info=error)
            self._session.finish(EndReason.FAILED)

    async def _from_tenant(self) -> None:
        """Pass on what the tenant types, as fast as the rate and the agent allow; until then the client waits."""
        pace = Pace(self._limits.input_bytes_per_second, self._loop.time)
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                stopping = message.get("code") == messages.RESTART
                self._session.finish(EndReason.STOPPING if stopping else EndReason.TENANT_ENDED)
                return
            data: bytes | None = message.get("bytes")
            if data is None:
                self._session.finish(EndReason.MESSAGE_REFUSED)
                return
            link = await asyncio.shield(self._session.link)
            for begin in range(0, len(data), FRAME_BYTES_MAX):
                piece = data[begin : begin + FRAME_BYTES_MAX]
                await pace.take(len(piece))
                try:
                    link.writer.write(frame(DATA, piece))
                    await link.writer.drain()
                except OSError:
                    self._session.finish(EndReason.AGENT_LOST)
                    return
                self._last = self._loop.time()
                self._session.to_guest += len(piece)
                metrics.BYTES.labels("to_guest").inc(len(piece))

    async def _from_agent(self) -> None:
        """Wait for the agent, then pass on what the guest writes."""
        session = self._session
        try:
            await self._socket.send_text(messages.waiting(session.id))
            try:
                # The worker and the agent have this time each.
                async with asyncio.timeout(2 * self._limits.dial_seconds):
                    link = await asyncio.shield(session.link)
            except TimeoutError:
                session.finish(EndReason.AGENT_ABSENT)
                return
            ends_at = datetime.now(UTC) + timedelta(seconds=self._limits.session_seconds)
            await self._socket.send_text(messages.begin(session.id, ends_at))
            await self._pass_on(link)
        except TimeoutError:
            session.finish(EndReason.SLOW_CLIENT)
        except WebSocketDisconnect:
            session.finish(EndReason.TENANT_ENDED)
        except (OSError, FrameRefused, ValidationError) as error:
            log.warning("console_link_lost", session_id=str(session.id), why=str(error) or type(error).__name__)
            session.finish(EndReason.AGENT_LOST)

    async def _pass_on(self, link: Link) -> None:
        """Raises TimeoutError if the client reads nothing for too long."""
        pace = Pace(self._limits.output_bytes_per_second, self._loop.time)
        while (found := await read_frame(link.reader)) is not None:
            kind, payload = found
            if kind == END:
                self._session.finish(reason_of_agent(ConsoleEnd.model_validate_json(payload).reason))
                return
            if kind == DROPPED:
                count = count_of(payload)
                # An agent may send any number of counts; the sum must stay one that the database stores.
                self._session.dropped = min(self._session.dropped + count, INTEGER_MAX)
                metrics.BYTES.labels("dropped").inc(count)
                async with asyncio.timeout(self._limits.stall_seconds):
                    await self._socket.send_text(messages.dropped(count))
                continue
            if kind != DATA:
                raise FrameRefused(f"an agent sends no frame of kind {kind!r} here")
            await pace.take(len(payload))
            async with asyncio.timeout(self._limits.stall_seconds):
                await self._socket.send_bytes(payload)
            self._last = self._loop.time()
            self._session.to_tenant += len(payload)
            metrics.BYTES.labels("to_tenant").inc(len(payload))
        self._session.finish(EndReason.AGENT_LOST)

    async def _watch_credential(self) -> None:
        await until_refused(self._recheck, self._limits.recheck_seconds)
        self._session.finish(EndReason.UNAUTHENTICATED)

    async def _watch_time(self) -> None:
        """End the joined session after its longest time, or after silence in both directions."""
        await asyncio.shield(self._session.link)
        self._began = self._last = self._loop.time()
        while True:
            now = self._loop.time()
            idle_until = self._last + self._limits.idle_seconds
            over_at = self._began + self._limits.session_seconds
            if now >= over_at:
                self._session.finish(EndReason.DEADLINE)
                return
            if now >= idle_until:
                self._session.finish(EndReason.IDLE)
                return
            await asyncio.sleep(min(idle_until, over_at) - now)

    async def _say_end(self, reason: EndReason) -> None:
        """Say why to both sides and close. A client that does not read is cut off."""
        if self._session.link.done() and not self._session.link.cancelled():
            said = ConsoleEnd(reason=reason.value)
            with suppress(OSError, RuntimeError):
                self._session.link.result().writer.write(frame(END, said.model_dump_json(exclude_none=True).encode()))
        if reason is EndReason.SLOW_CLIENT:
            self._socket.scope["state"].get("abort", lambda: None)()
            return
        if reason is EndReason.TENANT_ENDED:
            return
        with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self._socket.send_text(messages.ended(reason))
                await self._socket.close(messages.CLOSING.get(reason, messages.NORMAL), reason.value)
