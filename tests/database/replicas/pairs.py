"""A primary with one standby, and what a process has to read from them."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString, TypeVar

import psycopg
from sqlalchemy import Engine, event

import migrations
from migrations.roles import Role
from orchestrator.database.replicas import metrics
from orchestrator.database.replicas.connections import standby_engine
from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.replicas.replica import Replica
from orchestrator.database.replicas.rules import Cause
from orchestrator.database.replicas.watch import ReplicaWatch
from orchestrator.database.response_versions import ResponseVersion
from orchestrator.database.transactions import Database, Reading, connect_database
from tests.databases import as_role
from tests.support.failover.cluster import Cluster, Member
from tests.support.waiting import wait_for

Result = TypeVar("Result")
HEAD_OF_A_STANDBY = "in_recovery from log_head"
PENDING_EVENT: LiteralString = (
    "insert into outbox (event_type, correlation_id, subject, payload)"
    " values ('resource.created', gen_random_uuid(), 'resources/1', '{}')"
)
"""An event that has no version before `log_advance`."""
SOURCE = "select pg_is_in_recovery() as on_standby, version from log_head"


class Pair(Cluster):
    """A migrated primary `a`, and its standby `b`."""

    def start(self) -> None:
        """Start and migrate the primary, then its standby."""
        self.members = (self.a, self.b)  # type: ignore[assignment]
        self.a.start()
        self.a.make_roles(dict.fromkeys(Role, self.a.password))
        migrations.upgrade(self.a.url())
        self.b.start()
        self.catch_up()

    def catch_up(self) -> None:
        """Return when the standby has replayed what the primary has committed."""
        wait_for(lambda: replayed(self.b) >= written(self.a), "the standby has replayed everything")

    def pause(self) -> None:
        """The standby receives and replays nothing, until `resume`."""
        run(self.b, "select pg_wal_replay_pause()")
        wait_for(lambda: run(self.b, "select pg_get_wal_replay_pause_state()") == [("paused",)], "the replay is paused")

    def resume(self) -> None:
        """The standby replays again."""
        with suppress(psycopg.errors.SerializationFailure):  # what it replays may cancel the statement that lets it
            run(self.b, "select pg_wal_replay_resume()")

    def add_event(self) -> int:
        """One more event in the log of the primary; its version."""
        return add_event(self.a)


def run(member: Member, statement: str) -> list[tuple[Any, ...]]:
    """The rows of one statement on this server."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []


def add_event(member: Member) -> int:
    """One more event in the log of a server; its version."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        connection.execute(PENDING_EVENT)
        connection.execute("select log_advance(1000)")
        row = connection.execute("select version from log_head").fetchone()
    assert row is not None
    return int(row[0])


def written(member: Member) -> int:
    """Up to where a primary has written its log, in bytes."""
    return int(run(member, "select pg_current_wal_flush_lsn() - '0/0'")[0][0])


def replayed(member: Member) -> int:
    """Up to where a standby has replayed it."""
    return int(run(member, "select pg_last_wal_replay_lsn() - '0/0'")[0][0])


@contextmanager
def impatient(standby: Member) -> Iterator[None]:
    """The replay waits for no statement of the standby that is in its way."""
    standby.set("max_standby_streaming_delay", "0")
    try:
        yield
    finally:
        standby.set("max_standby_streaming_delay", "30s")


@contextmanager
def heads_asked() -> Iterator[list[str]]:
    """Each question for the head of a standby that reads of this process ask meanwhile."""
    asked: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        del connection, cursor, rest
        if HEAD_OF_A_STANDBY in statement:
            asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@contextmanager
def running_pair(directory: Path) -> Iterator[Pair]:
    """A pair for the length of the context."""
    place = directory / f"pair-{uuid.uuid4().hex[:8]}"
    pair = Pair(place)
    try:
        pair.start()
        yield pair
    finally:
        for member in (pair.a, pair.b, pair.c):
            member.kill()
        shutil.rmtree(place, ignore_errors=True)


@dataclass
class Reader:
    """What a process has for its reads. Rounds of the watch are the test's (`watch.examine`)."""

    database: Database
    replica: Replica
    watch: ReplicaWatch

    async def read(self, at_least: int | None = None) -> tuple[bool, int, int | None]:
        """Where a list is read that demands this version (None: states none): on a standby or not, its head, the noted one."""
        asked = ResponseVersion() if at_least is None else ResponseVersion(at_least=at_least, is_stated=True)

        async def read(reading: Reading) -> tuple[bool, int]:
            row = (await reading.execute(SOURCE)).one()
            return row.on_standby, row.version

        on_standby, version = await read_replicated(self.database.for_request(asked), read)
        return on_standby, version, asked.version

    async def wait_fit(self) -> None:
        """Return when a round finds the standby fit, and every connection to it is made."""

        def is_ready() -> bool:
            is_fit = any(standby.is_fit for standby in self.replica.standbys.values())
            return is_fit and self.replica.size >= self.watch._size

        async with asyncio.timeout(60):
            await self.watch.examine()
            while not is_ready():
                await self.watch.examine()


def address_of(*members: Member, role: Role = Role.PUBLIC_API, standby: bool = False) -> str:
    """The address of these servers as the role of the public API."""
    hosts, ports = ",".join("127.0.0.1" for _ in members), ",".join(str(member.port) for member in members)
    which = "standby" if standby else "read-write"
    url = f"postgresql://postgres:{members[0].password}@/berth?host={hosts}&port={ports}&target_session_attrs={which}"
    return as_role(url, role)


@asynccontextmanager
async def reading(
    primary: str, standby: str, *, wait_seconds: float = 0.05, lag_seconds: float = 10.0, size: int = 2
) -> AsyncIterator[Reader]:
    """The pools of a process with these addresses."""

    def pools(application: str) -> Database:
        return connect_database(
            primary, pool_size=2, reserve_size=1, lock_timeout_seconds=2, transaction_timeout_seconds=20,
            application=application, answer_seconds_max=2.0,
        )  # fmt: skip

    database = pools("test").for_platform()
    replica = Replica(wait_seconds)
    database.use_replica(replica)
    watch = ReplicaWatch(
        replica, standby_engine(standby, "test-reads"), pools("test-watch"), size=size, lag_seconds_max=lag_seconds
    )
    try:
        yield Reader(database, replica, watch)
    finally:
        await watch.close()
        await database.close()


@asynccontextmanager
async def reader_of(pair: Pair, **options: float) -> AsyncIterator[Reader]:
    """A process whose standby is fit."""
    pair.catch_up()
    async with reading(address_of(pair.a), address_of(pair.b, standby=True), **options) as reader:  # type: ignore[arg-type]
        await reader.wait_fit()
        yield reader


def fallbacks(cause: Cause) -> float:
    """How often the primary served for this cause."""
    return float(metrics.FALLBACKS.labels(cause=cause.value)._value.get())


def in_process(scene: Callable[[], Awaitable[Result]]) -> Result:
    """The result of a scene."""

    async def run() -> Result:
        return await scene()

    return asyncio.run(run())
