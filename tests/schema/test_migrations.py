"""Upgrades create the schema once and refuse databases that they cannot upgrade, with one sentence."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

import migrations
from migrations import upgrading
from migrations.upgrading import REVISIONS_BEFORE_BASELINE
from tests.support.waiting import wait_for

SCHEMA = Path(migrations.__file__).parent / "schema"

OBJECTS = """
select count(*) from (
    select relname::text from pg_class where relnamespace = 'public'::regnamespace and relname not like 'alembic%'
    union all select proname::text from pg_proc where pronamespace = 'public'::regnamespace
) objects
"""


def objects(url: str) -> int:
    """How many tables, indexes, sequences and functions there are."""
    with psycopg.connect(url) as connection:
        row = connection.execute(OBJECTS).fetchone()
        assert row is not None
        return int(row[0])


def test_an_upgrade_creates_the_schema(empty_url: str) -> None:
    assert migrations.current_revision(empty_url) is None
    assert migrations.upgrade(empty_url) == migrations.head_revision()
    assert migrations.current_revision(empty_url) == migrations.head_revision()
    made = objects(empty_url)
    assert made > 50
    migrations.upgrade(empty_url)
    assert objects(empty_url) == made


@pytest.mark.full
def test_repeating_it_changes_nothing(empty_url: str) -> None:
    migrations.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        connection.execute("insert into regions values ('eu-1', 'kept')")
    migrations.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("select display_name from regions").fetchall() == [("kept",)]


@pytest.mark.full
def test_two_at_once_do_it_once(empty_url: str) -> None:
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(migrations.upgrade(empty_url))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [migrations.head_revision()] * 3


def test_a_foreign_database_is_refused_by_name(empty_url: str) -> None:
    with psycopg.connect(empty_url) as connection:
        connection.execute("create table customers ()")
    with pytest.raises(migrations.SchemaProblem, match=r"not Berth's.*customers"):
        migrations.upgrade(empty_url)
    assert objects(empty_url) == 1


@pytest.mark.full
def test_a_newer_schema_is_refused(empty_url: str) -> None:
    migrations.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        connection.execute("update alembic_version set version_num = '9999'")
    with pytest.raises(migrations.SchemaProblem, match="newer than this Berth"):
        migrations.upgrade(empty_url)


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(migrations.SchemaProblem, match="cannot connect"):
        migrations.upgrade("postgresql://absent@127.0.0.1:1/nothing")


@pytest.mark.quick("0001")
@pytest.mark.parametrize("revision", REVISIONS_BEFORE_BASELINE)
def test_a_revision_before_the_baseline_is_refused(empty_url: str, revision: str) -> None:
    migrations.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        connection.execute("update alembic_version set version_num = %s", (revision,))
    with pytest.raises(
        migrations.SchemaProblem, match=rf"\({revision}\) is from before Berth's first release"
    ) as problem:
        migrations.upgrade(empty_url)
    assert "\n" not in str(problem.value)


UNCOMMENTED_TABLES = """
select relname from pg_class
where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v') and not relispartition
  and relname <> 'alembic_version' and obj_description(oid, 'pg_class') is null
"""


def test_every_table_has_a_comment(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert connection.execute(UNCOMMENTED_TABLES).fetchall() == []


INDEX = re.compile(
    r"""^(?P<before>.*)\n[\s"'b]*create (?:unique )?index (?:concurrently )?(?P<name>\w+)""", re.MULTILINE
)


def unexplained_indexes(text: str) -> list[str]:
    """Indexes that a schema file or a revision creates with neither a comment on the line before nor `comment on index`."""
    return [
        found["name"]
        for found in INDEX.finditer(text)
        if not found["before"].lstrip().startswith(("-- ", "# ")) and f"comment on index {found['name']} is" not in text
    ]


def test_every_index_names_the_query_it_serves() -> None:
    """Of the baseline and of every revision since."""
    files = [*SCHEMA.glob("*.sql"), *(SCHEMA.parent / "versions").rglob("*.py")]
    texts = {path.name: path.read_text() for path in files}
    created = {name: re.findall(r"\bcreate (?:unique )?index\b", text) for name, text in texts.items()}
    assert {name: len(found) for name, found in created.items()} == {
        name: len(INDEX.findall(text)) for name, text in texts.items()
    }
    assert sum(map(len, created.values())) > 100
    assert {name: found for name, text in texts.items() if (found := unexplained_indexes(text))} == {}


@pytest.mark.parametrize("comment", ["", "-- For the list.\n", "comment on index other is 'The list.';\n"])
def test_an_index_without_a_comment_is_found(comment: str) -> None:
    text = f"create table a (b int);\n{comment}create index by_b on a (b);\n"
    assert unexplained_indexes(text) == ([] if comment.startswith("--") else ["by_b"])
    assert unexplained_indexes(f"{text}comment on index by_b is 'The list.';\n") == []


def test_no_migration_contains_a_function_body() -> None:
    texts = [*SCHEMA.glob("*.sql"), *(SCHEMA.parent / "versions").rglob("*.py")]
    assert len(texts) > 10
    for path in texts:
        text = path.read_text().lower()
        assert "pg_get_functiondef" not in text, path
        assert not re.search(r"create (or replace )?(function|procedure)|\$\$", text), path


@pytest.mark.full
def test_first_boots_are_added_without_reading_the_allocations_there_are(empty_url: str) -> None:
    """A revision has locks that keep allocations from being created."""
    read = "select seq_scan + coalesce(idx_scan, 0) from pg_stat_user_tables where relname = 'allocations'"
    migrations.upgrade(empty_url, "0042")
    with psycopg.connect(empty_url) as connection:
        before = connection.execute(read).fetchone()
    assert before is not None
    migrations.upgrade(empty_url, "0043")
    with psycopg.connect(empty_url) as connection:
        assert connection.execute(read).fetchone() == before


@pytest.mark.full
def test_an_earlier_and_an_unknown_revision_are_refused(empty_url: str) -> None:
    migrations.upgrade(empty_url, "0045")
    with pytest.raises(migrations.SchemaProblem, match="rolls forward only"):
        migrations.upgrade(empty_url, "0044")
    for unknown in ("9999", "004", "base", ""):
        with pytest.raises(migrations.SchemaProblem, match="there is no revision"):
            migrations.upgrade(empty_url, unknown)
    assert migrations.current_revision(empty_url) == "0045"


@pytest.mark.full
def test_an_interrupted_upgrade_goes_on_at_the_revision_that_it_reached(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrations.upgrade(empty_url, "0044")
    monkeypatch.setattr(upgrading, "TRIES_SECONDS_MAX", 0.0)
    with psycopg.connect(empty_url) as reading:
        reading.execute("select from node_tasks")  # 0047 adds a column to it, 0046 does not use it
        with pytest.raises(migrations.SchemaProblem, match="lock timeout"):
            migrations.upgrade(empty_url)
        assert migrations.current_revision(empty_url) == "0046"
    assert migrations.upgrade(empty_url) == migrations.head_revision()


@pytest.mark.full
def test_a_waiting_revision_gives_way_to_requests_and_keeps_no_lock_of_the_one_before(empty_url: str) -> None:
    migrations.upgrade(empty_url, "0044")
    bounded = psycopg.connect(empty_url, autocommit=True, options="-c statement_timeout=10s")
    with psycopg.connect(empty_url) as reading, bounded as request:
        reading.execute("select from node_tasks")
        upgrading_now = threading.Thread(target=migrations.upgrade, args=(empty_url,))
        upgrading_now.start()
        try:
            for _ in range(20):
                wait_for(lambda: _waits_for_lock(request), "the upgrade waits for a lock")
                # Behind a lock that is waited for without a bound these would wait until their timeout.
                request.execute("select from node_tasks")
                request.execute("update nodes set name = name where false")
        finally:
            reading.rollback()
            upgrading_now.join()
    assert migrations.current_revision(empty_url) == migrations.head_revision()


def _waits_for_lock(connection: psycopg.Connection[TupleRow]) -> bool:
    return connection.execute("select from pg_locks where not granted and locktype = 'relation'").fetchone() is not None
