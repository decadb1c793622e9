"""Sessions of serial consoles on this node: at most one for each allocation, ended by the agent's other tasks and by deadlines.

A session changes nothing of its guest. It ends with the agent: what a predecessor had begun is reported as interrupted.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from node_agent.clock import ServerClock
from node_agent.consoles.dialing import DialFailed, Link, dial
from node_agent.consoles.holding import Holder
from node_agent.consoles.output import GuestOutput
from node_agent.drivers.contract import Driver, DriverFailure, InteractiveConsole
from node_agent.metrics import AgentMetrics
from node_agent.protocol import FailureCode, TaskBody
from node_agent.wire.console import (
    DATA,
    END,
    FRAME_BYTES_MAX,
    ConsoleEnd,
    ConsoleParameters,
    ConsoleReport,
    FrameRefused,
    counted,
    frame,
    read_frame,
)

log = structlog.get_logger("node_agent.consoles")

INPUT_SECONDS_MAX = 5.0
"""How long the guest may leave input in the way; then what is left of the frame is dropped."""
HANDOVER_SECONDS_MAX = 5.0
"""How long a session waits for an earlier one to let go of the console."""


class GuestGone(Exception):
    """The console of the guest has ended."""


class ConsoleRefused(OSError):
    """A console that is not opened, for a reason that the session ends with; `detail` is for operators."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Session:
    """One session under way. The first reason to end it counts; `gone` is the one if the console ends by itself."""

    def __init__(self, fence: int, gone: str = "guest_ended") -> None:
        self.fence = fence
        self.gone = gone
        self.bytes_to_guest = 0
        self.bytes_from_guest = 0
        self.bytes_dropped = 0
        self._reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def is_over(self) -> bool:
        """Whether there is a reason to end it."""
        return self._reason.done()

    def end(self, reason: str) -> None:
        """End it for this reason, unless it ends already."""
        if not self._reason.done():
            self._reason.set_result(reason)

    def note_end_of(self, pump: asyncio.Task[None]) -> None:
        """End it if one of its pumps failed."""
        if not pump.cancelled() and (error := pump.exception()) is not None:
            log.error("console_failed", exc_info=error)
            self.end("failed")

    async def ended(self, seconds_max: float) -> str:
        """Why it ends: `deadline` after `seconds_max`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds_max)):
                return await asyncio.shield(self._reason)
        self.end("deadline")
        return self._reason.result()

    def report(self) -> ConsoleReport:
        """What the task's result says."""
        return ConsoleReport(
            reason=self._reason.result(), bytes_to_guest=self.bytes_to_guest, bytes_from_guest=self.bytes_from_guest,
            bytes_dropped=self.bytes_dropped,
        )  # fmt: skip


class Consoles:
    """Serves sessions with the consoles of one driver, or with those that `attach` is given. `tls` returns the context of the
    present identity."""

    def __init__(
        self, driver: Driver | None, clock: ServerClock, metrics: AgentMetrics, tls: Callable[[], ssl.SSLContext]
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._metrics = metrics
        self._tls = tls
        self._sessions: dict[UUID, Session] = {}
        self._holders: dict[UUID, Holder] = {}

    def end(self, allocation_id: UUID | None, reason: str = "guest_ended") -> None:
        """End the session of an allocation whose guest is about to change."""
        if allocation_id is not None and (session := self._sessions.get(allocation_id)) is not None:
            session.end(reason)

    async def serve(self, body: TaskBody, order: ConsoleParameters) -> ConsoleReport:
        """Serve the session until one side ends it, the guest ends or the task expires. Raises DriverFailure."""
        session = Session(body.fence)
        dial_seconds = (order.dial_until - self._clock.now()).total_seconds()
        try:
            async with dial(order, self._tls(), max(0.0, dial_seconds)) as link:
                if order.mode == "log":
                    return await self._send_log(session, order, link)
                return await self.attach(session, body.expires_at, order, link)
        except DialFailed as failure:
            raise DriverFailure(FailureCode.DRIVER_ERROR, str(failure)) from failure

    async def _send_log(self, session: Session, order: ConsoleParameters, link: Link) -> ConsoleReport:
        assert self._driver is not None, "logs are of a node's guests"
        try:
            text = await self._driver.console(order.allocation_id, order.offset, order.bytes_max)
            end = ConsoleEnd(reason="log_sent", offset=text.offset)
            for begin in range(0, len(text.data), FRAME_BYTES_MAX):
                piece = text.data[begin : begin + FRAME_BYTES_MAX]
                await link.send(frame(DATA, piece))
                session.bytes_from_guest += len(piece)
        except LookupError as error:
            end = ConsoleEnd(reason="no_guest", detail=str(error)[:300])
        except ConnectionError:
            end = ConsoleEnd(reason="link_lost")
        session.end(end.reason)
        await _say_end(link, end)
        return session.report()

    async def attach(
        self, session: Session, expires_at: datetime, order: ConsoleParameters, link: Link,
        console: AbstractAsyncContextManager[int] | None = None,
    ) -> ConsoleReport:  # fmt: skip
        """Serve a session over a link whose both sides have proven themselves, until `expires_at` at the latest.

        `console`: the one to open; None: the driver's.
        """
        held = self._sessions.get(order.allocation_id)
        if held is not None and held.fence > session.fence:
            # It must not take the place of the newer one, which the agent's other tasks end by it.
            session.end("superseded")
            await _say_end(link, ConsoleEnd(reason="superseded"))
            return session.report()
        if held is not None:
            held.end("superseded")
        console = console or self._console_of(order.allocation_id)
        if console is None:
            session.end("no_console")
        seconds = (expires_at - self._clock.now()).total_seconds()
        self._sessions[order.allocation_id] = session
        self._metrics.consoles.inc()
        try:
            reason, detail = await self._pump(session, order.allocation_id, console, link, seconds)
        finally:
            self._metrics.consoles.dec()
            if self._sessions.get(order.allocation_id) is session:
                del self._sessions[order.allocation_id]
            log.info(
                "console_ended", session_id=str(order.session_id), allocation_id=str(order.allocation_id),
                bytes_to_guest=session.bytes_to_guest, bytes_from_guest=session.bytes_from_guest,
                bytes_dropped=session.bytes_dropped,
            )  # fmt: skip
        await _say_end(link, ConsoleEnd(reason=reason, detail=detail))
        return session.report()

    def _console_of(self, allocation_id: UUID) -> AbstractAsyncContextManager[int] | None:
        driver: object = self._driver
        return driver.attach(allocation_id) if isinstance(driver, InteractiveConsole) else None

    async def _pump(
        self,
        session: Session,
        allocation_id: UUID,
        console: AbstractAsyncContextManager[int] | None,
        link: Link,
        seconds_max: float,
    ) -> tuple[str, str]:
        """Pump until the session ends; why, and a sentence about it."""
        if console is None or session.is_over():
            return await session.ended(0.0), ""
        ending = asyncio.create_task(session.ended(seconds_max))
        before = self._holders.get(allocation_id)
        try:
            # A driver gives a console to one client at a time, and one that hangs gets no second call.
            if before is not None and not await before.closed(min(HANDOVER_SECONDS_MAX, seconds_max)):
                session.end("no_console")
                return await ending, "an earlier session has not let go of the console"
            if session.is_over():
                return await ending, ""
            return await self._pump_held(session, self._hold(allocation_id, console), link, ending), ""
        except LookupError as error:
            session.end("no_guest")
            return "no_guest", str(error)[:300]
        except ConsoleRefused as refused:
            session.end(refused.reason)
            return session.report().reason, str(refused)[:300]
        except OSError as error:
            session.end("no_console")
            return "no_console", str(error)[:300]
        finally:
            ending.cancel()

    def _hold(self, allocation_id: UUID, console: AbstractAsyncContextManager[int]) -> Holder:
        holder = self._holders[allocation_id] = Holder(console)

        def forget(_: asyncio.Task[None]) -> None:
            if self._holders.get(allocation_id) is holder:
                del self._holders[allocation_id]

        holder.task.add_done_callback(forget)
        return holder

    @staticmethod
    async def _pump_held(session: Session, holder: Holder, link: Link, ending: asyncio.Task[str]) -> str:
        """Pump once the console is open; why the session ended. Raises what opening the console raised."""
        try:
            first: set[asyncio.Future[Any]] = {ending, holder.opened}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not holder.opened.done():
                return await ending
            descriptor = holder.opened.result()
            output = GuestOutput(descriptor)
            pumps = [
                asyncio.create_task(_to_tenant(session, output, link)),
                asyncio.create_task(_to_guest(session, descriptor, link)),
            ]
            for pump in pumps:
                pump.add_done_callback(session.note_end_of)
            output.start()
            try:
                return await asyncio.shield(ending)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                output.stop()
        finally:
            holder.release()
            if holder.opened.done():
                await holder.closed(HANDOVER_SECONDS_MAX)


async def _to_tenant(session: Session, output: GuestOutput, link: Link) -> None:
    """Send what the guest writes."""
    try:
        while (found := await output.next()) is not None:
            data, dropped = found
            if data:
                await link.send(frame(DATA, data))
                session.bytes_from_guest += len(data)
            if dropped:
                await link.send(counted(dropped))
                session.bytes_dropped = output.dropped
        session.end(session.gone)
    except OSError:
        session.end("link_lost")


async def _to_guest(session: Session, descriptor: int, link: Link) -> None:
    """Pass on what the tenant types."""
    try:
        while (found := await read_frame(link.reader)) is not None:
            kind, payload = found
            if kind == END:
                session.end("tenant_ended")
                return
            if kind != DATA:
                raise FrameRefused(f"a process sends no frame of kind {kind!r} here")
            session.bytes_to_guest += await _write(descriptor, payload)
        session.end("link_lost")
    except GuestGone:
        session.end(session.gone)
    except OSError:
        session.end("link_lost")
    except FrameRefused as refused:
        log.warning("console_frame_refused", why=str(refused))
        session.end("link_lost")


async def _write(descriptor: int, data: bytes) -> int:
    """Write to the guest; how much it took. What it does not take in time is dropped. Raises GuestGone."""
    written = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(INPUT_SECONDS_MAX):
            while written < len(data):
                try:
                    written += os.write(descriptor, data[written:])
                except BlockingIOError:
                    await _writable(descriptor)
                except OSError as error:
                    raise GuestGone from error
    return written


async def _writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(descriptor)


async def _say_end(link: Link, end: ConsoleEnd) -> None:
    """Say why, if the other side still reads."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await link.send(frame(END, end.model_dump_json(exclude_none=True).encode()))
