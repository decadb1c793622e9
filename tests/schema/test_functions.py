"""SQL functions are files: the database runs exactly these texts, and upgrades replace them without an interruption."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from migrations.functions import FunctionProblem, apply_functions, digest_of, generation, read_functions
from migrations.functions.files import FOLDER, GENERATIONS
from tests.support.waiting import wait_for

DEFINITIONS = """
select proname, pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace order by proname
"""
RECORDED = "select name, sha256 from sql_functions where deprecated_at is null"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the function files that a test may change."""
    copied: Path = shutil.copytree(FOLDER, tmp_path / "functions")
    return copied


def next_generation(folder: Path) -> int:
    """Add a line to the generations of `folder`; return its number."""
    number = generation(folder)[0] + 1
    with (folder / GENERATIONS).open("a") as lines:
        lines.write(f"{number} {digest_of(read_functions(folder))}\n")
    return number


def write(folder: Path, name: str, body: str, arguments: str = "") -> None:
    """A function of SQL that returns a bigint."""
    text = f"create or replace function {name}({arguments}) returns bigint language sql as $$ {body} $$;\n"
    (folder / "database" / f"{name}.sql").write_text(text)


def upgrade(url: str, folder: Path) -> list[str]:
    """What one run of the loader applied and dropped."""
    with psycopg.connect(url) as connection:
        return apply_functions(connection, folder)


def call(url: str, name: str) -> object:
    """What a function without arguments returns."""
    with psycopg.connect(url) as connection:
        row = connection.execute(sql.SQL("select {}()").format(sql.Identifier(name))).fetchone()
        assert row is not None
        return row[0]


def deprecation(url: str, name: str) -> tuple[int | None, object] | None:
    """Generation and time at which the record of a function was marked as deprecated."""
    with psycopg.connect(url) as connection:
        found = connection.execute("select deprecated_in, deprecated_at from sql_functions where name = %s", (name,))
        return found.fetchone()


def test_every_function_of_the_database_has_a_file_and_equals_it(database_url: str) -> None:
    files = read_functions()
    with psycopg.connect(database_url) as connection:
        running = connection.execute(DEFINITIONS).fetchall()
        assert [name for name, _ in running] == sorted(file.name for file in files)
        for file in files:
            connection.execute(file.text.encode())
        assert connection.execute(DEFINITIONS).fetchall() == running
        assert dict(connection.execute(RECORDED).fetchall()) == {file.name: file.sha256 for file in files}


def test_the_newest_generation_is_that_of_the_files() -> None:
    number, digest = generation()
    assert digest == digest_of(read_functions()), (
        f"function files changed: append '{number + 1} {digest_of(read_functions())}' to migrations/functions/{GENERATIONS}"
    )
    numbers = [int(line.split()[0]) for line in (FOLDER / GENERATIONS).read_text().splitlines()]
    assert numbers == list(range(1, number + 1))


def test_only_changed_functions_are_applied_and_callees_come_first(database_url: str, folder: Path) -> None:
    assert upgrade(database_url, folder) == []
    write(folder, "a_caller", "select z_callee() + 1")
    write(folder, "z_callee", "select 1")
    next_generation(folder)
    assert upgrade(database_url, folder) == ["z_callee", "a_caller"]
    assert call(database_url, "a_caller") == 2
    assert upgrade(database_url, folder) == []
    write(folder, "z_callee", "select 2")
    next_generation(folder)
    assert upgrade(database_url, folder) == ["z_callee"]
    assert call(database_url, "a_caller") == 3
    assert upgrade(database_url, folder) == []


def test_functions_that_call_each_other_are_refused(folder: Path) -> None:
    write(folder, "first_one", "select second_one()")
    write(folder, "second_one", "select first_one()")
    with pytest.raises(FunctionProblem, match="call each other in a circle"):
        read_functions(folder)


def test_a_name_in_a_comment_is_no_call(folder: Path) -> None:
    write(folder, "first_one", "select second_one()")
    write(folder, "second_one", "select 1 -- called by first_one()\n")
    names = [file.name for file in read_functions(folder)]
    assert names.index("second_one") < names.index("first_one")


FUNCTION = "create or replace function {}() returns bigint language sql as $$ select 1 $$;\n"


@pytest.mark.parametrize("contained", [("other",), ("misnamed", "other"), ()])
def test_a_file_contains_its_function_alone(folder: Path, contained: tuple[str, ...]) -> None:
    (folder / "database" / "misnamed.sql").write_text("".join(map(FUNCTION.format, contained)))
    with pytest.raises(FunctionProblem, match="exactly one `create or replace function misnamed"):
        read_functions(folder)


def test_a_function_has_one_file(folder: Path) -> None:
    (folder / "tenants" / "rfc3339.sql").write_text(FUNCTION.format("rfc3339"))
    with pytest.raises(FunctionProblem, match="two function files have the same name"):
        read_functions(folder)


def test_a_function_without_a_file_is_dropped_one_generation_later(database_url: str, folder: Path) -> None:
    write(folder, "going", "select 1", "p bigint default 1, q text default ''")
    next_generation(folder)
    upgrade(database_url, folder)
    (folder / "database" / "going.sql").unlink()
    number = next_generation(folder)
    assert upgrade(database_url, folder) == []
    since = deprecation(database_url, "going")
    assert since is not None
    assert since[0] == number
    assert upgrade(database_url, folder) == []
    assert deprecation(database_url, "going") == since
    assert call(database_url, "going") == 1, "processes of the version before still call it"
    next_generation(folder)
    assert upgrade(database_url, folder) == ["going"]
    with pytest.raises(psycopg.errors.UndefinedFunction):
        call(database_url, "going")


@pytest.mark.parametrize("text", ["select 1", "select 2"], ids=["unchanged", "changed"])
def test_a_function_whose_file_returns_is_kept(database_url: str, folder: Path, text: str) -> None:
    """It counts as new from then on: when its file is deleted again, it is kept for one generation again."""
    write(folder, "returning_one", "select 1")
    next_generation(folder)
    upgrade(database_url, folder)
    file = folder / "database" / "returning_one.sql"
    file.unlink()
    next_generation(folder)
    upgrade(database_url, folder)
    write(folder, "returning_one", text)
    for _ in range(2):
        next_generation(folder)
        upgrade(database_url, folder)
    assert call(database_url, "returning_one") == int(text.split()[1])
    assert deprecation(database_url, "returning_one") == (None, None)
    file.unlink()
    next_generation(folder)
    assert upgrade(database_url, folder) == []


def test_changed_arguments_are_refused(database_url: str, folder: Path) -> None:
    write(folder, "widening", "select 1")
    next_generation(folder)
    upgrade(database_url, folder)
    write(folder, "widening", "select p", "p bigint")
    next_generation(folder)
    with pytest.raises(FunctionProblem, match="widening_v2"):
        upgrade(database_url, folder)
    assert call(database_url, "widening") == 1


def test_a_loader_older_than_the_database_is_refused(database_url: str, folder: Path) -> None:
    number = next_generation(folder)
    upgrade(database_url, folder)
    with psycopg.connect(database_url) as connection:
        connection.execute("update sql_functions set sha256 = repeat('0', 64) where name = 'rfc3339'")
    with pytest.raises(FunctionProblem, match=rf"\(generation {number}\) are newer than this Berth"):
        upgrade(database_url, FOLDER)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select sha256 from sql_functions where name = 'rfc3339'").fetchone() == ("0" * 64,)


def test_functions_and_their_record_change_together(database_url: str, folder: Path) -> None:
    write(folder, "broken", "select no_such_column")
    write(folder, "a_good_one", "select 1")
    next_generation(folder)
    with pytest.raises(psycopg.errors.UndefinedColumn):
        upgrade(database_url, folder)
    with psycopg.connect(database_url) as connection:
        assert "a_good_one" not in dict(connection.execute(RECORDED).fetchall())
        assert connection.execute("select generation from function_generation").fetchone() == (generation()[0],)


@pytest.mark.full
def test_no_call_fails_while_the_loader_upgrades(database_url: str, folder: Path) -> None:
    """A process of the generation before keeps calling, prepared statements included, while its functions are replaced."""
    write(folder, "served", "select 1")
    write(folder, "serving", "select served()")
    next_generation(folder)
    upgrade(database_url, folder)
    stop = threading.Event()
    results: list[object] = []
    failures: list[psycopg.Error] = []
    process = threading.Thread(target=_serve, args=(database_url, stop, results.append, failures.append))
    process.start()
    try:
        for number in range(2, 12):
            write(folder, "served", f"select {number}")
            next_generation(folder)
            upgrade(database_url, folder)
        (folder / "database" / "serving.sql").unlink()
        next_generation(folder)
        upgrade(database_url, folder)
        wait_for(lambda: len(results) >= 100 or failures, "100 calls")
    finally:
        stop.set()
        process.join()
    assert failures == []
    assert results[-1] == 11


def _serve(
    url: str, stop: threading.Event, answer: Callable[[object], None], fail: Callable[[psycopg.Error], None]
) -> None:
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            while not stop.is_set():
                row = connection.execute("select serving(), rfc3339(now()), log_advance(1)", prepare=True).fetchone()
                assert row is not None
                answer(row[0])
    except psycopg.Error as error:
        fail(error)


LINES_MAX = 80


def test_functions_have_a_readable_size() -> None:
    lengths = {file.name: len(file.text.splitlines()) for file in read_functions()}
    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}


def test_a_time_is_formatted_in_the_statement_without_a_call(schema: psycopg.Connection[Any]) -> None:
    """`rfc3339` is inlined, so that statements of the hot path cost what the expression costs."""
    plan = schema.execute("explain (verbose) select rfc3339(occurred_at) from log").fetchall()
    assert "to_char(" in str(plan)
    assert "rfc3339" not in str(plan)
