"""Reads the log in Postgres for the publisher."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any, LiteralString, NamedTuple, TypeVar

import psycopg
from psycopg.rows import args_row

from berth.process.database_connections import ANSWER_SECONDS_MAX, AnsweringConnection, RestoringConnection
from outbox_relay.messages import SELECT_EVENTS, SELECT_STUB, Event
from outbox_relay.postgres import PASSING_ERRORS
from outbox_relay.problems import PublishingStopped, RelayProblem, ServerUnavailable, first_line

T = TypeVar("T")

SELECT_STATUS = """
    select h.version, h.leader_id, postgres_leader_id(), (select version from log order by version limit 1),
           s.first_version, current_setting('synchronous_standby_names') <> '', s.skipped_to
    from log_head h cross join log_stream s"""

CURSOR = "berth-relay"
"""The relay's name among the consumers whose positions keep the log from being truncated (docs/reference/log-retention.md)."""

SAVE_POSITION = """
    insert into consumer_positions (consumer, version) values (%(consumer)s, %(version)s)
    on conflict (consumer) do update set version = excluded.version, updated_at = clock_timestamp()
    where consumer_positions.version < excluded.version"""
# The position goes back with it, so that nothing is truncated that the new stream still lacks.
ORDER_STREAM = """
    with beginning as (select version from log_first where version <= %(first)s for no key update), held as (
        update consumer_positions set version = least(version, %(first)s - 1), updated_at = clock_timestamp()
        where consumer = %(consumer)s and exists (select from beginning) returning 1
    ), ordered as (
        update log_stream set first_version = %(first)s, ordered_at = clock_timestamp()
        where exists (select from beginning) returning 1)
    insert into audit (principal_kind, principal_id, action, subject, detail)
    select 'system', 'berth events rebuild', 'events.rebuild', 'log', jsonb_build_object('first_version', %(first)s::bigint)
    from ordered returning id"""
ACCEPT_TIMELINE = """
    with accepted as (select * from log_skip_versions(
        %(diverged)s, %(lost_through)s, case when %(spare)s then log_spare_versions(%(diverged)s) else 0 end)), audited as (
        insert into audit (principal_kind, principal_id, action, subject, detail)
        select 'system', 'berth events rebuild', 'events.accept_timeline', 'log', jsonb_build_object(
            'diverged', %(diverged)s::bigint, 'lost_through', %(lost_through)s::bigint, 'moved', moved, 'skipped', skipped)
        from accepted returning 1)
    select moved, skipped from accepted cross join audited"""

# The next event of the log is the one that replaces it. `log.version_lost`: accepted by an earlier version of Berth.
IS_SKIPPED = """
    select event_type = 'log.version_lost' and version = %(version)s
           or event_type = 'log.versions_skipped' and (payload ->> 'first')::bigint <= %(version)s
    from log where version >= %(version)s order by version limit 1"""
AWAITS_EXPORT = "select 1 from restores where closed_at is null and exported_at is null and without_export is null"
FAILOVER_DOUBT = "select log_failover_doubt()"
RESUME_TIMELINE = "select log_resume_timeline(%(version)s, %(event_id)s)"
# One at a time: PostgreSQL keeps the session of a barrier that waits for a standby, also when its relay is gone.
BARRIER = """
    select case when pg_try_advisory_xact_lock(hashtext('berth.barrier'))
                then pg_logical_emit_message(true, 'berth', '')::text end"""


class LogStatus(NamedTuple):
    """The state of the log: newest version, ids of its writer and of this Postgres, oldest version kept (None: none),
    the first version that an operator ordered for a stream that is made again, whether commits wait for a standby, and the newest
    version that replaces skipped ones (0: none), before which no stream can begin.
    """

    head: int
    written_by: str
    leader_id: str
    lowest_kept: int | None
    ordered_begin: int
    waits_for_standbys: bool
    skipped_to: int = 0

    @property
    def lowest_publishable(self) -> int | None:
        """The lowest version kept that a stream can hold; None if none is kept."""
        return None if self.lowest_kept is None else max(self.lowest_kept, self.skipped_to)

    @property
    def oldest_publishable(self) -> int:
        """The first version that a stream may begin with."""
        return self.lowest_publishable or self.head + 1

    @property
    def stream_begin(self) -> int:
        """The first version of a stream that is made now."""
        return min(max(self.ordered_begin, self.oldest_publishable), self.head + 1)

    @property
    def is_foreign(self) -> bool:
        """Whether another Postgres, or an earlier timeline, wrote the log."""
        return self.written_by != self.leader_id

    def leader_changed(self, why: str) -> PublishingStopped:
        """The refusal to publish what another Postgres, or an earlier timeline, wrote."""
        return PublishingStopped(
            "leader_changed",
            f"the log was written by Postgres {self.written_by} and this one is {self.leader_id} (a restore or a failover): "
            f"{why}. Check it, then raise the log's versions and rebuild the stream with "
            "`berth events rebuild --accept-timeline`.",
        )


class LogReader:
    """One connection that reads the log. Its methods raise `ServerUnavailable` when Postgres is lost or does not answer."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def connected(
        cls, address: str, answer_seconds_max: float = ANSWER_SECONDS_MAX, *, during_restore: bool = False
    ) -> AsyncIterator[LogReader]:
        """A reader for the length of the context; each statement is answered within `answer_seconds_max`.

        `during_restore`: also while the database is being restored.
        """
        kind = RestoringConnection if during_restore else AnsweringConnection
        try:
            connection = await kind.connect(address, autocommit=True)
        except PASSING_ERRORS as error:
            raise ServerUnavailable("postgres", first_line(error)) from error
        connection.answer_seconds_max = answer_seconds_max
        try:
            yield cls(connection)
        finally:
            await connection.close()

    async def status(self) -> LogStatus:
        """Return the log's state. Raises PublishingStopped if another Postgres, or an earlier timeline, wrote it."""
        status = await self.read_status()
        if status.is_foreign:
            raise status.leader_changed("versions may have been lost")
        return status

    async def read_status(self) -> LogStatus:
        """Return the log's state, even if another Postgres wrote it."""
        cursor = self._connection.cursor(row_factory=args_row(LogStatus))
        await self._answered(cursor.execute(SELECT_STATUS))
        status = await cursor.fetchone()
        if status is None:
            raise PublishingStopped("no_head", "the log has no head row; the database is damaged")
        return status

    async def is_skipped(self, version: int) -> bool:
        """Whether the log has skipped this version: an operator has accepted this Postgres since."""
        row = await self._row(IS_SKIPPED, version=version)
        return row is not None and bool(row[0])

    async def event_id_at(self, version: int) -> str | None:
        """The id of the event at `version`; None if the log has none there."""
        row = await self._row("select event_id::text from log where version = %(version)s", version=version)
        return None if row is None else str(row[0])

    async def is_restored(self) -> bool:
        """Whether a restore is open: readers may have got versions of the lost interval that NATS never had."""
        return await self._row("select 1 from restores where closed_at is null") is not None

    async def awaits_export(self) -> bool:
        """Whether a restore is open whose lost interval is neither exported nor given up: only the stream has it."""
        return await self._row(AWAITS_EXPORT) is not None

    @asynccontextmanager
    async def sole_rebuild(self) -> AsyncIterator[bool]:
        """Whether this session is the only one that rebuilds, for the length of the context.

        The claim is given back: Postgres notices the end of a session after its client, and a command that is repeated at
        once would be refused.
        """
        row = await self._row("select pg_try_advisory_lock(hashtext('berth.events.rebuild'))")
        is_alone = row is not None and bool(row[0])
        try:
            yield is_alone
        finally:
            if is_alone:
                with suppress(*PASSING_ERRORS):
                    await self._connection.execute("select pg_advisory_unlock(hashtext('berth.events.rebuild'))")

    async def order_stream(self, first_version: int) -> None:
        """From now on a stream that is made anew begins with `first_version`; written to the audit.

        Nothing from it on is truncated before NATS has it. Raises `RelayProblem` if that has just happened.
        """
        if await self._row(ORDER_STREAM, first=first_version, consumer=CURSOR) is None:
            raise RelayProblem(f"the log was truncated beyond version {first_version} meanwhile; repeat the command")

    async def save_position(self, version: int) -> None:
        """NATS has everything up to `version`, so the log need not keep it for the relay."""
        await self._answered(self._connection.execute(SAVE_POSITION, {"consumer": CURSOR, "version": version}))

    async def commit_barrier(self) -> None:
        """Commit something that changes nothing. Under quorum commit, what was visible before it is on a standby then.

        A primary that was restarted while commits waited for a standby shows them before any standby has them; what is published
        of them could be lost by the next failover. Raises `ServerUnavailable` while another barrier waits.
        """
        row = await self._row(BARRIER)
        if row is None or row[0] is None:
            raise ServerUnavailable("postgres", "a commit waits for a standby")

    async def failover_doubt(self) -> str | None:
        """The word for what speaks against a promotion of this Postgres when the log's writer was lost; None if nothing does.

        Words: `migrations/functions/log/log_failover_doubt.sql`.
        """
        row = await self._row(FAILOVER_DOUBT)
        return None if row is None or row[0] is None else str(row[0])

    async def open_epoch(self) -> None:
        """Rows that are sequenced from now on belong to another history than those before, although no timeline is accepted."""
        await self._row("select log_open_epoch()")

    async def resume_timeline(self, version: int, event_id: str | None) -> str | None:
        """Make this Postgres the log's writer if its continuity is proven; otherwise return the word for what is missing.

        `version`: the stream's last sequence, `event_id`: the event that it holds there. Proof and words:
        `migrations/functions/log/log_resume_timeline.sql`.
        """
        row = await self._row(RESUME_TIMELINE, version=version, event_id=event_id)
        assert row is not None, "the function answers one row"
        return None if row[0] is None else str(row[0])

    async def accept_timeline(self, diverged: int, lost_through: int, *, spare: bool) -> tuple[int, int]:
        """Make this Postgres the log's writer, with no version given twice; return events moved and versions skipped.

        `spare`: skip also what readers may have got above `lost_through` since the event before `diverged`.
        """
        row = await self._row(ACCEPT_TIMELINE, diverged=diverged, lost_through=lost_through, spare=spare)
        assert row is not None, "the function answers one row"
        return int(row[0]), int(row[1])

    async def _row(self, statement: LiteralString, **values: object) -> tuple[Any, ...] | None:
        return await (await self._answered(self._connection.execute(statement, values))).fetchone()

    async def _answered(self, asked: Awaitable[T]) -> T:
        try:
            return await asked
        except PASSING_ERRORS as error:
            raise ServerUnavailable("postgres", first_line(error)) from error

    async def events_after(self, version: int, limit: int) -> list[Event]:
        """Up to `limit` events that follow `version`, in order."""
        cursor = self._connection.cursor(binary=True, row_factory=args_row(Event))
        await self._answered(cursor.execute(SELECT_EVENTS, {"after": version, "limit": limit}))
        return await cursor.fetchall()

    async def stub(self, version: int, reason: str) -> Event:
        """What goes out in place of an event that cannot be published: its envelope, bounded, without its payload.

        Its id for de-duplication is its own, because NATS may know the event's.
        """
        cursor = self._connection.cursor(binary=True, row_factory=args_row(Event))
        await self._answered(cursor.execute(SELECT_STUB, {"version": version, "reason": reason}))
        found = await cursor.fetchone()
        if found is None:
            raise PublishingStopped("gap", f"version {version} is no longer in the log and NATS has not got it")
        return found._replace(event_id=f"{found.event_id}-stub-{version}")
