"""Rows that an enabled stream has not sent stay in the database, whatever the archive's retention says."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from berth.cli.deployment.archive.directory import Directory
from berth.cli.deployment.archive.running import Archived, Retention, run_archive
from migrations.roles import Role
from orchestrator.database.sqlstates import LEDGER_IMMUTABLE
from tests.archive.old_audit import chain_ago, sequences
from tests.databases import as_role
from tests.support.waiting import WAIT_SECONDS_MAX

KEPT = Retention(400, 800)


@pytest.fixture
def old(database: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """Seven rows of 900 days ago, and three of today."""
    chain_ago(database, 900, 7)
    chain_ago(database, 0, 3)
    return database


def archive(url: str, directory: Path) -> Archived:
    return run_archive(as_role(url, Role.OPERATOR), Directory(directory / "archive"), KEPT)


def enable(url: str, name: str) -> None:
    """As the streamer does, as its role."""
    with psycopg.connect(as_role(url, Role.AUDIT_STREAM), autocommit=True) as streamer:
        streamer.execute("select audit_stream_begin(%s)", (name,))


def advance(url: str, name: str, sequence: int) -> None:
    with psycopg.connect(as_role(url, Role.AUDIT_STREAM), autocommit=True) as streamer:
        streamer.execute("update audit_streams set sequence = %s where name = %s", (sequence, name))


def test_rows_leave_when_every_stream_has_sent_them(
    database_url: str, old: psycopg.Connection[Any], tmp_path: Path
) -> None:
    for name in ("nats", "syslog"):
        enable(database_url, name)
    advance(database_url, "nats", 7)
    done = archive(database_url, tmp_path)
    assert (done.audit_rows, done.audit_unsent_from) == (0, 1)
    advance(database_url, "syslog", 4)
    done = archive(database_url, tmp_path)
    assert (done.audit_rows, done.audit_unsent_from) == (4, 5)
    advance(database_url, "syslog", 7)
    done = archive(database_url, tmp_path)
    assert (done.audit_rows, done.audit_unsent_from) == (3, None)
    assert sequences(old)[0] == 8


def test_without_a_stream_nothing_is_held(database_url: str, old: psycopg.Connection[Any], tmp_path: Path) -> None:
    done = archive(database_url, tmp_path)
    assert (done.audit_rows, done.audit_unsent_from) == (7, None)


def test_the_database_refuses_to_let_unsent_rows_leave(database_url: str, old: psycopg.Connection[Any]) -> None:
    enable(database_url, "nats")
    advance(database_url, "nats", 3)
    with psycopg.connect(as_role(database_url, Role.OPERATOR)) as operator:
        operator.execute(
            "insert into archive_segments (sequence, kind, manifest_sha256, destination, name, deleted, audit_first,"
            " audit_last, audit_hash) select 1, 'audit', repeat('0', 64), 'd', 'n', 7, 1, 7, hash from audit_chain"
            " where sequence = 7"
        )
        with pytest.raises(psycopg.DatabaseError) as refused:
            operator.execute("select audit_forget(1)")
    assert refused.value.sqlstate == LEDGER_IMMUTABLE
    assert sequences(old)[0] == 1


def test_a_stream_that_is_enabled_during_an_archiving_begins_behind_it(
    database_url: str, old: psycopg.Connection[Any]
) -> None:
    """The anchor's lock orders both: the stream never begins with a row that has just left."""
    with psycopg.connect(as_role(database_url, Role.OPERATOR)) as operator:
        operator.execute(
            "insert into archive_segments (sequence, kind, manifest_sha256, destination, name, deleted, audit_first,"
            " audit_last, audit_hash) select 1, 'audit', repeat('0', 64), 'd', 'n', 7, 1, 7, hash from audit_chain"
            " where sequence = 7"
        )
        operator.execute("select audit_forget(1)")
        enabling = threading.Thread(target=enable, args=(database_url, "nats"))
        enabling.start()
        enabling.join(0.5)
        assert enabling.is_alive(), "it waits for the archive's commit"
        operator.commit()
        enabling.join(WAIT_SECONDS_MAX)
    assert old.execute("select sequence from audit_streams").fetchall() == [(7,)]


@pytest.mark.parametrize("position", [3, 11])
def test_a_position_moves_neither_back_nor_beyond_the_chain(
    database_url: str, old: psycopg.Connection[Any], position: int
) -> None:
    enable(database_url, "nats")
    advance(database_url, "nats", 5)
    with pytest.raises(psycopg.DatabaseError) as refused:
        advance(database_url, "nats", position)
    assert refused.value.sqlstate == LEDGER_IMMUTABLE
