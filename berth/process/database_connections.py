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
from psycopg.abc import RV, PQGen

from berth.process.deposed_servers import is_deposed, other_servers, require_standby
from berth.process.poolers import UNSUPPORTED, refusal_of
from berth.process.restore_gate import require_no_restore

ANSWER_SECONDS_MAX = 13.0
"""Beyond what a statement of Berth may take: waits for locks are bounded by `lock_timeout`."""
ALIVE_SECONDS_MAX = 2.0
"""For a statement that does nothing, which tests an idle connection."""
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

    Its socket is shut down then. The statement is not cancelled: PostgreSQL ends a commit's wait for a standby with success
    when it is cancelled, and the next failover would lose what was acknowledged. The outcome is unknown to the caller.
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

    async def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """As `AsyncConnection.wait`, through which every statement goes."""
        timer = asyncio.get_running_loop().call_later(self.answer_seconds_max, self._shut)
        try:
            return await super().wait(gen, *arguments, **options)
        finally:
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

    def _shut(self) -> None:
        self.is_shut = True
        if not self.of_standby:
            note_silence()
        with suppress(psycopg.Error):
            shut(self.fileno())


class RestoringConnection(AnsweringConnection):
    """A connection of a command that restores or examines the database, which an open restore does not refuse."""

    serves = False
