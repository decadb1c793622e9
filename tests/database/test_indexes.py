"""Each index of the tables that a create writes, and of BMCs, guards rows, or serves a statement whose plan uses it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.seeding import seed_fleet, seed_tenants
from tests.allocations.seeding import connect
from tests.database.index_queries import GUARDS, QUERIES, TABLES, explain, fill, fill_bmcs

ROOT = Path(__file__).parents[2]
_INDEXES = """
select i.relname from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid
where t.relname = any (%s) and t.relnamespace = 'public'::regnamespace
"""


def _indexes(connection: psycopg.Connection[Any]) -> set[str]:
    return {name for (name,) in connection.execute(_INDEXES, (list(TABLES),))}


def test_every_index_is_used(database_url: str) -> None:
    seed_fleet(database_url, 500)
    seed_tenants(database_url, 1)
    with connect(database_url) as connection:
        fill(connection, filled=4)
        fill_bmcs(connection)
        unused = {name: plan for name in QUERIES if name not in (plan := explain(connection, name))}
    assert unused == {}


def test_every_index_has_a_guard_or_a_statement(database_url: str) -> None:
    with connect(database_url) as connection:
        assert _indexes(connection) == GUARDS | QUERIES.keys()


def test_the_page_lists_each_index_with_the_function_that_reads_by_it() -> None:
    page = (ROOT / "docs" / "reference" / "performance.md").read_text()
    table = page.partition("| index | read by | time of the statement |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| \S.* \|$", table, re.MULTILINE)
    assert rows == sorted((index, function) for index, (function, _) in QUERIES.items())
    assert len(rows) == len(table.splitlines()) - 1


def test_the_functions_that_read_by_an_index_exist() -> None:
    names = {path.stem for path in (ROOT / "migrations" / "functions").rglob("*.sql")}
    for path in (ROOT / "orchestrator").rglob("*.py"):
        names.update(re.findall(r"def (\w+)\(", path.read_text()))
    assert {function for function, _ in QUERIES.values()} - names == set()
