"""The chain of the audit: gapless, complete whatever commits late, and each way of tampering with it is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from orchestrator.verification.all_checks import run_checks
from orchestrator.verification.verdict import Verdict
from tests.databases import copied_database

INSERT = (
    b"insert into audit (principal_kind, principal_id, action, subject)"
    b" values ('system', 'test', 'thing.turn', 'things/' || %s)"
)


@pytest.fixture
def url(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """A database of the test's own."""
    with copied_database(postgres_server, migrated_template) as copied:
        yield copied


def _chain(connection: psycopg.Connection[Any], limit: int = 1_000) -> int:
    row = connection.execute("select audit_advance(%s)", (limit,)).fetchone()
    assert row is not None
    return int(row[0])


def _chained(connection: psycopg.Connection[Any]) -> list[tuple[int, str]]:
    return connection.execute("select sequence, subject from audit_chain order by sequence").fetchall()


def _verdict(url: str) -> Verdict:
    (found,) = [verdict for verdict in run_checks(url) if verdict.promise == "audit"]
    return found


def test_a_row_that_commits_late_is_chained_late_and_none_is_skipped(url: str) -> None:
    with psycopg.connect(url) as late, psycopg.connect(url, autocommit=True) as other:
        late.execute(INSERT, ("late",))
        other.execute(INSERT, ("early",))
        assert _chain(other) == 1
        assert _chained(other) == [(1, "things/early")]
        late.commit()
        assert _chain(other) == 1
        assert _chained(other) == [(1, "things/early"), (2, "things/late")]
        assert other.execute("select count(*) from audit_pending").fetchall() == [(0,)]
    assert (_verdict(url).violations, _verdict(url).checked) == ([], 2)


def test_a_crash_before_the_commit_leaves_the_rows_waiting(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(INSERT, ("one",))
        crashed = psycopg.connect(url)
        assert _chain(crashed) == 1
        crashed.close()
        assert _chained(other) == []
        assert _chain(other) == 1
        assert _chained(other) == [(1, "things/one")]
    assert _verdict(url).kept


def test_two_sequencers_take_turns(url: str) -> None:
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        for number in range(3):
            second.execute(INSERT, (str(number),))
        second.commit()
        assert _chain(first, 2) == 2
        second.execute("set lock_timeout = '20ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            _chain(second)
        second.rollback()
        first.commit()
        assert _chain(second) == 1
        assert [sequence for sequence, _ in _chained(second)] == [1, 2, 3]


TAMPERED = {
    "a changed row": ("update audit_chain set action = 'thing.leave' where sequence = 3", "audit row 3: its hash is not"),
    "a changed hash": (
        "update audit_chain set hash = sha256('x') where sequence = 2", "audit row 2: its hash is not that of the row before",
    ),
    "a removed row": ("delete from audit_chain where sequence = 3", "audit row 4: rows 3 to 3 are missing before it"),
    "a removed beginning": ("delete from audit_chain where sequence < 3", "audit row 3: rows 1 to 2 are missing before it"),
    "a removed end": ("delete from audit_chain where sequence = 5", "the audit ends at row 4, and its head at 5"),
    "an exchanged pair": (
        "update audit_chain c set subject = o.subject from audit_chain o where c.sequence + o.sequence = 5 and c.sequence < 4",
        "audit row 1: its hash is not",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_found_at_its_first_row(url: str, name: str) -> None:
    statement, sentence = TAMPERED[name]
    with psycopg.connect(url, autocommit=True) as connection:
        for number in range(5):
            connection.execute(INSERT, (str(number),))
        assert _chain(connection) == 5
        assert _verdict(url).kept
        connection.execute("set session_replication_role = replica")
        connection.execute(statement.encode())
    assert _verdict(url).violations[0].startswith(sentence)


def test_rows_leave_the_waiting_table_through_the_chain_alone(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(INSERT, ("kept",))
        with pytest.raises(psycopg.DatabaseError, match="its rows are not in the chain"):
            connection.execute("delete from audit_pending")
        assert _chain(connection) == 1
        assert _chained(connection) == [(1, "things/kept")]
