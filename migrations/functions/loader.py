"""Applies the function files to a database, in the transaction of the migration, and records what it applied."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from migrations.functions.files import FOLDER, FunctionFile, FunctionProblem, generation, read_functions

_ARGUMENTS = """
select pg_get_function_identity_arguments(oid) from pg_proc
where pronamespace = current_schema()::regnamespace and proname = %s
"""


def create_functions(connection: Connection[TupleRow], names: Iterable[str]) -> None:
    """Create these functions before any table exists, for triggers and inserts of a migration."""
    wanted = set(names)
    for file in read_functions():
        if file.name in wanted:
            connection.execute(file.text.encode())


def apply_functions(connection: Connection[TupleRow], folder: Path = FOLDER) -> list[str]:
    """Create or replace the functions whose text changed, drop those deprecated by an earlier generation; return both.

    Raises `FunctionProblem` if the database has functions of a newer generation, or if a function's arguments changed.
    """
    own, _ = generation(folder)
    (applied,) = connection.execute("select generation from function_generation for update").fetchone() or (0,)
    if applied > own:
        raise FunctionProblem(
            f"the database's functions (generation {applied}) are newer than this Berth ({own}); upgrade Berth"
        )
    files = read_functions(folder)
    recorded: dict[str, str] = dict(
        connection.execute("select name, sha256 from sql_functions where deprecated_at is null").fetchall()
    )
    changed = [file for file in files if recorded.get(file.name) != file.sha256]
    for file in changed:
        _apply(connection, file, own)
    dropped = _drop_deprecated(connection, [file.name for file in files], own)
    connection.execute("update function_generation set generation = %s", (own,))
    return [file.name for file in changed] + dropped


def _apply(connection: Connection[TupleRow], file: FunctionFile, own: int) -> None:
    connection.execute(file.text.encode())
    found = connection.execute(_ARGUMENTS, (file.name,)).fetchall()
    if len(found) != 1:
        raise FunctionProblem(
            f"{file.name} changed its arguments, and processes of the version before call it with the old ones; "
            f"give the new function a new name ({file.name}_v2)"
        )
    connection.execute(
        "insert into sql_functions (name, arguments, sha256, generation) values (%s, %s, %s, %s)"
        " on conflict (name) do update set arguments = excluded.arguments, sha256 = excluded.sha256,"
        " generation = excluded.generation, applied_at = clock_timestamp(), deprecated_at = null, deprecated_in = null",
        (file.name, found[0][0], file.sha256, own),
    )


def _drop_deprecated(connection: Connection[TupleRow], names: list[str], own: int) -> list[str]:
    gone = connection.execute(
        "delete from sql_functions where deprecated_in < %s and name <> all (%s) returning name, arguments",
        (own, names),
    ).fetchall()
    for name, arguments in gone:
        function = sql.SQL("drop function {}({})").format(sql.Identifier(str(name)), sql.SQL(str(arguments)))
        connection.execute(function)
    connection.execute(
        "update sql_functions set deprecated_at = clock_timestamp(), deprecated_in = %s"
        " where deprecated_at is null and name <> all (%s)",
        (own, names),
    )
    return [str(name) for name, _ in gone]
