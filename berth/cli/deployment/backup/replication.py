"""What a PostgreSQL server says on a replication connection, which needs no right on any database."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.programs import CONNECT_SECONDS, problem_of
from berth.cli.deployment.backup.wal import position

ANSWER_SECONDS_MAX = 10.0
"""A frozen server keeps its connections alive (TRAPS): the deadline is this side's."""


@dataclass(frozen=True, slots=True)
class Server:
    """What it is, up to where its WAL is on its disk, and what a receiver has confirmed; positions in bytes.

    `confirmed`: None without a slot, or with one that reserves nothing. `slot_keep`: `max_slot_wal_keep_size` as it is shown.
    """

    system_identifier: str
    timeline: int
    flushed: int
    confirmed: int | None = None
    slot_exists: bool = False
    slot_keep: str = ""
    segment_bytes: int = 16 << 20


def ask(url: str, slot: str | None = None) -> Server:
    """Ask the server. Raises `BackupProblem` if it does not answer in time or does not admit us."""
    found: Server = _bounded(_ask(url, slot))
    return found


def create_slot(url: str, slot: str) -> None:
    """Make the physical slot, which reserves WAL from now on, unless there is one. Raises `BackupProblem`."""
    _bounded(_create(url, slot))


def drop_slot(url: str, slot: str) -> None:
    """Drop the slot; the server keeps no WAL for it any longer. Raises `BackupProblem`."""
    _bounded(_execute(url, sql.SQL("DROP_REPLICATION_SLOT {}").format(sql.Identifier(slot))))


def _bounded(question: Any) -> Any:
    async def in_time() -> Any:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            return await question

    try:
        return asyncio.run(in_time())
    except TimeoutError as error:
        raise BackupProblem(
            "backup_server_unreachable", f"the PostgreSQL server did not answer within {ANSWER_SECONDS_MAX:g} s"
        ) from error
    except psycopg.Error as error:
        raise problem_of(str(error), "a replication connection to the PostgreSQL server") from error


async def _connect(url: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(
        url, autocommit=True, replication="true", client_encoding="utf8", connect_timeout=CONNECT_SECONDS
    )


async def _execute(url: str, command: sql.Composed) -> None:
    async with await _connect(url) as connection:
        await connection.execute(command)


async def _create(url: str, slot: str) -> None:
    command = sql.SQL("CREATE_REPLICATION_SLOT {} PHYSICAL RESERVE_WAL").format(sql.Identifier(slot))
    try:
        await _execute(url, command)
    except psycopg.errors.DuplicateObject:
        return


async def _ask(url: str, slot: str | None) -> Server:
    async with await _connect(url) as connection:
        identity = await (await connection.execute("IDENTIFY_SYSTEM")).fetchone()
        keep = await (await connection.execute("SHOW max_slot_wal_keep_size")).fetchone()
        segment = await (await connection.execute("SHOW wal_segment_size")).fetchone()
        assert identity is not None
        assert keep is not None
        assert segment is not None
        kind = confirmed = None
        if slot is not None:
            reading = sql.SQL("READ_REPLICATION_SLOT {}").format(sql.Identifier(slot))
            kind, confirmed, _ = await (await connection.execute(reading)).fetchone() or (None, None, None)
        return Server(
            str(identity[0]), int(identity[1]), position(str(identity[2])),
            None if confirmed is None else position(str(confirmed)), kind is not None, str(keep[0]), _bytes(str(segment[0])),
        )  # fmt: skip


def _bytes(shown: str) -> int:
    """A size as PostgreSQL shows it: 16MB, 1GB."""
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10), ("B", 1)):
        if shown.endswith(unit):
            return int(shown.removesuffix(unit)) * factor
    return int(shown)
