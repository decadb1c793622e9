"""Connections to PostgreSQL that wait for no answer without a limit.

A primary that is frozen (a paused machine, a stalled disk) keeps its connections open and ends no statement: its own timeouts
stand still with it, and the kernel acknowledges what is sent. Under quorum commit a commit that no standby confirms waits
without a limit too: neither `statement_timeout` nor `transaction_timeout` ends it.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

import psycopg
from psycopg import waiting
from psycopg.abc import RV, PQGen
from psycopg.pq import TransactionStatus

from berth.process.deposed_servers import is_deposed, other_servers, require_standby
from berth.process.poolers import UNSUPPORTED, refusal_of
from berth.process.restore_gate import require_no_restore

ANSWER_SECONDS_MAX = 13.0
"""Beyond what a statement of Berth may take: waits for locks are bounded by `lock_timeout`."""
ALIVE_SECONDS_MAX = 2.0
"""For a statement that does nothing, which tests an idle connection."""
WAKE_SECONDS = 0.1
"""How often a wait for an answer wakes to see whether the socket is still open, as psycopg's own does."""
SILENCE_SECONDS = 60.0
"""How long after a server has not answered a new connection asks how many commits wait for a standby."""


def shut(descriptor: int) -> None:
    """Shut down a connection's socket: whatever waits for an answer on it fails at once, in whichever thread it waits."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)


_silent_at = -math.inf


def note_silence() -> None:
    """A server has just not answered within its time."""
    global _silent_at
    _silent_at = time.monotonic()


def was_silent() -> bool:
    """Whether a server has not answered this process within the last `SILENCE_SECONDS`."""
    return time.monotonic() - _silent_at < SILENCE_SECONDS


class AnsweringConnection(psycopg.AsyncConnection[Any]):
    """A connection that fails with `OperationalError` if the server owes an answer for longer than `answer_seconds_max`.

    Its socket is shut down then, and when the task that waits for an answer is cancelled. The statement is never cancelled:
    PostgreSQL ends a commit's wait for a standby with success when it is cancelled, and the next failover would lose what was
    acknowledged. The outcome is unknown to the caller.
    """

    answer_seconds_max: float = ANSWER_SECONDS_MAX
    is_shut: bool = False
    serves: bool = True
    """Whether it is refused while the database is being restored; False for the commands that restore it."""
    of_standby: bool = False
    """Whether it is refused by a primary, instead of by a deposed one; its silence is not the primary's."""

    @classmethod
    async def connect(cls, conninfo: str = "", *, autocommit: bool = False, **options: Any) -> Self:
        """As `AsyncConnection.connect`; a deposed primary (berth/process/deposed_servers.py) is left for the next server.

        Raises `OperationalError` if no server can be connected to, or only a primary for `of_standby`; `PoolerRefused` if the
        address is that of a pooler, `ClockRefused` if the primary's clock cannot be right, `RestoreOpen` while the database is
        being restored.
        """
        while True:
            try:
                connection = await super().connect(conninfo, autocommit=True, **options)
            except psycopg.OperationalError as error:
                if UNSUPPORTED in str(error):
                    raise refusal_of(conninfo, options) from error
                raise
            try:
                if cls.of_standby:
                    await require_standby(connection)
                if cls.of_standby or not await is_deposed(connection):
                    if cls.serves:
                        await require_no_restore(connection)
                    await connection.set_autocommit(autocommit)
                    return connection
                host, port = connection.info.host, connection.info.port
            except BaseException:
                await connection.close()
                raise
            await connection.close()
            others = other_servers(conninfo, options, host, port)
            if others is None:
                raise psycopg.OperationalError(
                    f"the server at port {port} was deposed: another one is on a newer timeline"
                )
            options |= others

    async def wait(self, gen: PQGen[RV], interval: float = WAKE_SECONDS, timeout: float | None = None) -> RV:
        """As `AsyncConnection.wait`, through which every statement goes; a cancelled task ends the connection."""
        timer = asyncio.get_running_loop().call_later(self.answer_seconds_max, self._shut)
        _waiting[self] = time.monotonic()
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval=interval, timeout=timeout)
        except (asyncio.CancelledError, KeyboardInterrupt):
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.abandon()  # psycopg would send a cancel request
            raise
        finally:
            _waiting.pop(self, None)
            timer.cancel()
            if self.is_shut:
                # The answer came in the moment of the shutdown (a process that was paused): the connection is of no more use.
                self.pgconn.finish()

    @contextmanager
    def soon(self) -> Iterator[None]:
        """Within the context, for a test of an idle connection, the server owes an answer within `ALIVE_SECONDS_MAX`."""
        before, self.answer_seconds_max = self.answer_seconds_max, ALIVE_SECONDS_MAX
        try:
            yield
        finally:
            self.answer_seconds_max = before

    async def is_alive(self) -> bool:
        """Whether the server answers a statement that does nothing, soon. For a connection in autocommit mode."""
        try:
            with self.soon():
                await self.execute("")
        except psycopg.Error:
            return False
        return True

    def abandon(self) -> None:
        """Shut down the socket: what waits for an answer fails with `OperationalError`, and PostgreSQL goes on with it."""
        self.is_shut = True
        with suppress(psycopg.Error):
            shut(self.fileno())

    def _shut(self) -> None:
        if not self.of_standby:
            note_silence()
        self.abandon()


_waiting: dict[AnsweringConnection, float] = {}
"""The connections of this process on which the server owes an answer, and since when (monotonic time)."""


def abandon_statements(older_than_seconds: float) -> int:
    """End each connection on which the server owes an answer for so long, as its silence would; return how many.

    For a process that stops: its callers are answered while it can still answer.
    """
    before = time.monotonic() - older_than_seconds
    owed = [connection for connection, since in _waiting.items() if since <= before]
    for connection in owed:
        connection.abandon()
    return len(owed)


class RestoringConnection(AnsweringConnection):
    """A connection of a command that restores or examines the database, which an open restore does not refuse."""

    serves = False
