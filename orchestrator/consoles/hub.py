"""The console sessions of one API process: opened by tenants' requests, joined with the connections that agents open.

The secret of a session is in this process alone: an agent that connects learns it, and compares it with the signed task.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4

import structlog

from node_agent.wire.console import WELCOME, ConsoleHello, frame
from orchestrator.consoles import commands, metrics
from orchestrator.consoles.refusals import ConsoleUnavailable, TooManyConsoles
from orchestrator.consoles.rules import Counts, EndReason, Mode
from orchestrator.consoles.settings import ConsoleLimits
from orchestrator.consoles.store import NewSession
from orchestrator.database.transactions import TransactionConflict
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from orchestrator.tenants.principals import Principal

log = structlog.get_logger("orchestrator.consoles")
SECRET_BYTES = 32
END_TRIES_MAX = 3
RETRY_SECONDS = 0.5
UNCONFIRMED_SECONDS_MAX = 20.0
"""How long a session goes on unconfirmed: the worker ends it after `BERTH_CONSOLE_SILENT_SECONDS`, which is longer."""
CONFIRM_SECONDS_MAX = 5.0
RECONFIRM_SECONDS_MAX = 1.0


class Link:
    """The connection of an agent, which it keeps until `close`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.closed = asyncio.Event()

    def close(self) -> None:
        """Let go of it."""
        self.closed.set()


@dataclass(eq=False)
class Session:
    """An open session of this process. The first reason to end it counts."""

    id: UUID
    allocation_id: UUID
    tenant_id: UUID
    node_id: UUID
    site_id: UUID | None
    mode: Mode
    waits_until: datetime
    secret: bytes
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    to_guest: int = 0
    to_tenant: int = 0
    dropped: int = 0

    def __post_init__(self) -> None:
        """Create the futures; the session counts as just confirmed."""
        self.confirmed_at = self.loop.time()
        self.link: asyncio.Future[Link] = self.loop.create_future()
        self.ended: asyncio.Future[EndReason] = self.loop.create_future()

    def finish(self, reason: EndReason) -> None:
        """End it for this reason, unless it ends already."""
        if not self.ended.done():
            self.ended.set_result(reason)

    @property
    def counts(self) -> Counts:
        """The bytes so far."""
        return Counts(self.to_guest, self.to_tenant, self.dropped)


class ConsoleHub:
    """`address`: where agents reach this process; None: it serves no consoles. Call it from one event loop.

    A session that the database has not confirmed for `unconfirmed_seconds_max` ends as `process_lost`.
    """

    def __init__(
        self,
        context: Context,
        limits: ConsoleLimits,
        address: str | None,
        unconfirmed_seconds_max: float = UNCONFIRMED_SECONDS_MAX,
    ) -> None:
        self._context = context.for_platform()
        self.limits = limits
        self._address = address
        self._unconfirmed_seconds_max = unconfirmed_seconds_max
        self.process_id = uuid4()
        self._sessions: dict[UUID, Session] = {}
        self._opening = 0
        self._stopping = False
        self._idle = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Confirm sessions to the database while they last."""
        keeping = asyncio.create_task(self._keep())
        keeping.add_done_callback(_died)
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    @asynccontextmanager
    async def session(
        self, context: Context, principal: Principal, allocation_id: UUID, mode: Mode, request_id: str | None,
        offset: int = 0, bytes_max: int = 0,
    ) -> AsyncIterator[Session]:  # fmt: skip
        """An open session, ended with the block for the reason that it has then, else `failed`.

        Raises `ConsoleUnavailable`, and what `commands.open_session` raises.
        """
        if self._address is None or self._stopping:
            await commands.require_console(context, principal, allocation_id, mode)
            raise ConsoleUnavailable("this process serves no consoles; the operator must configure BERTH_CONSOLE_PORT")
        if len(self._sessions) + self._opening >= self.limits.sessions_max:
            metrics.REFUSED.labels("process").inc()
            raise TooManyConsoles.of_process(self.limits.sessions_max)
        secret = secrets.token_bytes(SECRET_BYTES)
        new = NewSession(
            allocation_id, mode, self.process_id, self._address, hashlib.sha256(secret).hexdigest(),
            self.limits.dial_seconds, self.limits.session_seconds, offset, bytes_max,
        )  # fmt: skip
        self._opening += 1
        try:
            opened = await commands.open_session(
                context, principal, new, tenant_sessions_max=self.limits.tenant_sessions_max, request_id=request_id
            )
        except Problem as problem:
            metrics.REFUSED.labels(problem.code).inc()
            raise
        finally:
            self._opening -= 1
        assert principal.tenant_id is not None, "it would be refused"
        session = Session(
            opened.id,
            allocation_id,
            principal.tenant_id,
            opened.node_id,
            opened.site_id,
            mode,
            opened.waits_until,
            secret,
        )
        self._sessions[session.id] = session
        metrics.OPEN.labels(mode).inc()
        self._idle.set()
        try:
            yield session
        finally:
            session.finish(EndReason.FAILED)
            metrics.OPEN.labels(mode).dec()
            if session.link.done() and not session.link.cancelled():
                session.link.result().close()
            session.link.cancel()
            # A client that disconnects cancels this task; the end is recorded nevertheless.
            await asyncio.shield(asyncio.ensure_future(self._end(session, principal, request_id)))

    async def claim(self, hello: ConsoleHello, node_id: UUID, link: Link) -> Session | None:
        """Join an agent's connection with the session that it names; None if it has no right to it, or another has it.

        Only the agent of the session's node, which has read the signed task, once.
        """
        session = self._sessions.get(hello.session_id)
        if session is None or session.node_id != node_id or session.link.done() or session.ended.done():
            return None
        if session.site_id is not None:
            return None  # its site serves it, and no agent of the node
        if not _knows(hello, session):
            return None
        if not await commands.attach_session(self._context, session.id, node_id, self.process_id):
            return None
        return self._welcome(session, link)

    async def claim_for_site(self, hello: ConsoleHello, agent_id: UUID, link: Link) -> Session | None:
        """The same for a machine: only the agent that holds the lease of its site, and was handed the session under it."""
        session = self._sessions.get(hello.session_id)
        if session is None or session.site_id is None or session.link.done() or session.ended.done():
            return None
        if not _knows(hello, session):
            return None
        if not await commands.attach_machine_session(self._context, session.id, agent_id, self.process_id):
            return None
        return self._welcome(session, link)

    @staticmethod
    def _welcome(session: Session, link: Link) -> Session | None:
        if session.link.done() or session.ended.done():
            return None
        link.writer.write(frame(WELCOME, session.secret))
        session.link.set_result(link)
        return session

    async def close(self, seconds_max: float) -> None:
        """End every session, and return when their last messages are sent, or after `seconds_max`."""
        self._stopping = True
        for session in self._sessions.values():
            session.finish(EndReason.STOPPING)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while self._sessions:
                    await asyncio.sleep(0.01)

    async def _keep(self) -> None:
        """Confirm the sessions, and end those that the database gives a reason to end or does not confirm."""
        pause = self.limits.recheck_seconds
        while True:
            await self._idle.wait()
            await asyncio.sleep(pause)
            known = list(self._sessions.values())
            if not known:
                self._idle.clear()
                continue
            # Not every open row of the process: the sweeper ends one whose end could not be recorded.
            ids = [session.id for session in known]
            loop = asyncio.get_running_loop()
            asked_at = loop.time()
            pause = self.limits.recheck_seconds
            try:
                async with asyncio.timeout(min(CONFIRM_SECONDS_MAX, self._unconfirmed_seconds_max)):
                    found = await commands.keep_sessions(self._context, self.process_id, ids)
            except (Problem, TransactionConflict, TimeoutError) as error:
                log.warning("consoles_not_confirmed", why=str(error) or type(error).__name__)
                pause = min(pause, RECONFIRM_SECONDS_MAX)
                for session in known:
                    if loop.time() - session.confirmed_at >= self._unconfirmed_seconds_max:
                        session.finish(EndReason.PROCESS_LOST)
                continue
            self._compare(known, found, asked_at)

    @staticmethod
    def _compare(known: Iterable[Session], found: dict[UUID, EndReason | None], asked_at: float) -> None:
        for session in known:
            session.confirmed_at = asked_at
            if session.id not in found:
                session.finish(EndReason.PROCESS_LOST)
            elif (reason := found[session.id]) is not None:
                session.finish(reason)

    async def _end(self, session: Session, principal: Principal, request_id: str | None) -> None:
        """Record the end. What cannot be recorded now is ended by the sweeper, once this process no longer confirms it."""
        reason = session.ended.result()
        try:
            for attempt in range(END_TRIES_MAX):
                try:
                    await commands.end_session(
                        self._context, session.id, reason, session.counts, principal.actor, request_id
                    )
                    break
                except (Problem, TransactionConflict) as error:
                    log.warning("console_end_not_recorded", session_id=str(session.id), why=str(error), attempt=attempt)
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._sessions.pop(session.id, None)
        metrics.ENDED.labels(reason.value).inc()
        log.info(
            "console_ended", session_id=str(session.id), allocation_id=str(session.allocation_id), mode=session.mode,
            tenant_id=str(session.tenant_id), reason=reason.value, bytes_to_guest=session.to_guest,
            bytes_to_tenant=session.to_tenant, bytes_dropped=session.dropped, request_id=request_id,
        )  # fmt: skip


def _knows(hello: ConsoleHello, session: Session) -> bool:
    """Whether the agent has read the signed task."""
    return hmac.compare_digest(hello.secret_sha256, hashlib.sha256(session.secret).hexdigest())


def _died(task: asyncio.Task[None]) -> None:
    """End the process: without confirmation the sweeper would end each session of it."""
    if not task.cancelled() and task.exception() is not None:
        log.critical("consoles are no longer confirmed; ending the process", exc_info=task.exception())
        raise SystemExit(1)
