"""Reads the log in Postgres for the publisher."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import psycopg
from psycopg.rows import args_row

from outbox_relay.messages import SELECT_EVENTS, SELECT_STUB, Event
from outbox_relay.postgres import PASSING_ERRORS
from outbox_relay.problems import PublishingStopped, ServerUnavailable, first_line

SELECT_STANDING = """
    select version, leader_id, postgres_leader_id(), (select version from log order by version limit 1) from log_head"""


class LogStanding(NamedTuple):
    """The log's newest version, who wrote it, who this Postgres is, and the oldest version kept (None: none)."""

    head: int
    written_by: str
    leader_id: str
    lowest_kept: int | None


class LogReader:
    """One connection that reads the log. Its methods raise `ServerUnavailable` when Postgres is lost."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def connected(cls, address: str) -> AsyncIterator[LogReader]:
        """A reader for the length of the context."""
        try:
            connection = await psycopg.AsyncConnection.connect(address, autocommit=True)
        except PASSING_ERRORS as error:
            raise ServerUnavailable("postgres", first_line(error)) from error
        try:
            yield cls(connection)
        finally:
            await connection.close()

    async def standing(self) -> LogStanding:
        """Where the log stands. Raises `PublishingStopped` if another Postgres, or an earlier timeline, wrote it."""
        try:
            cursor = self._connection.cursor(row_factory=args_row(LogStanding))
            await cursor.execute(SELECT_STANDING)
            standing = await cursor.fetchone()
        except PASSING_ERRORS as error:
            raise ServerUnavailable("postgres", first_line(error)) from error
        if standing is None:
            raise PublishingStopped("no_head", "the log has no head row; the database is damaged")
        if standing.written_by != standing.leader_id:
            raise PublishingStopped(
                "leader_changed",
                f"the log was written by Postgres {standing.written_by} and this one is {standing.leader_id} (a "
                "restore or a failover): versions may have been lost. Raise the log's versions and rebuild the stream.",
            )
        return standing

    async def events_after(self, version: int, limit: int) -> list[Event]:
        """Up to `limit` events that follow `version`, in order."""
        try:
            cursor = self._connection.cursor(binary=True, row_factory=args_row(Event))
            await cursor.execute(SELECT_EVENTS, {"after": version, "limit": limit})
            return await cursor.fetchall()
        except PASSING_ERRORS as error:
            raise ServerUnavailable("postgres", first_line(error)) from error

    async def stub(self, version: int, reason: str) -> Event:
        """What goes out in place of an event that cannot be published: its envelope, bounded, without its payload.

        Its id for de-duplication is its own, because NATS may know the event's.
        """
        try:
            cursor = self._connection.cursor(binary=True, row_factory=args_row(Event))
            await cursor.execute(SELECT_STUB, {"version": version, "reason": reason})
            found = await cursor.fetchone()
        except PASSING_ERRORS as error:
            raise ServerUnavailable("postgres", first_line(error)) from error
        if found is None:
            raise PublishingStopped("gap", f"version {version} is no longer in the log and NATS has not got it")
        return found._replace(event_id=f"{found.event_id}-stub-{version}")
