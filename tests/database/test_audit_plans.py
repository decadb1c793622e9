"""A page of the audit reads a bounded number of rows, whatever is filtered, however many rows there are.

Counted, not timed: with plans that are made for the values and with generic ones, before the table is analysed and after.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from orchestrator.audit.list_store import EXAMINED_MAX, Filter, list_entries
from orchestrator.database.transactions import Database
from tests.allocations.seeding import connect, make_context
from tests.database.counting import Counted

LIMIT = 101
MORE = 200
"""Entries of an index beyond those of the page: of the bounds of time, and of the edges of pages."""
TENANTS = [UUID(int=number) for number in range(3)]
# The first 40 % of all rows are refusals of one tenant; a rare value of each column is in the last rows alone. One tenant in two
# rows of three, one subject in one of ten, actions of very different frequency.
FILL = b"""
insert into audit_chain (sequence, recorded_at, id, at, principal_kind, principal_id, role, tenant_id, source, action, subject,
                         status, code, detail, hash)
select n, '2026-01-01T00:00:00Z'::timestamptz + n * interval '1 s', n, '2026-01-01T00:00:00Z', 'tenant',
       case when n > %(rows)s - 5 then 'rare' when n %% 3 < 2 then 'common' else 'p' || n %% 1000 end, 'admin',
       case when n > %(rows)s - 5 then %(rare)s::uuid when n %% 3 < 2 or n < 0.4 * %(rows)s then %(common)s::uuid
            else %(other)s::uuid end, '203.0.113.9',
       case when n > %(rows)s - 5 then 'rare' when n %% 100 < 90 then 'common' else 'other' end,
       case when n > %(rows)s - 5 then 'rare' when n %% 10 = 0 then 'common' else 'things/' || n / 3 end, 201,
       case when n > %(rows)s - 5 then 'rare' when n < 0.4 * %(rows)s then 'common' else 'ok' end, '{}', sha256('')
from generate_series(1, %(rows)s) n
"""
VALUES: dict[str, list[Any]] = {
    "subject": [None, "common", "rare", "absent"], "principal": [None, "common", "rare"],
    "tenant_id": [None, TENANTS[0], TENANTS[2]], "action": [None, "common", "rare"],
    "outcome": [None, "common", "rare", "ok"],
}  # fmt: skip
SINCE = datetime(2026, 1, 1, 1, tzinfo=UTC)


def _filters(every: int) -> list[Filter]:
    """Every combination of at most two values, every `every`-th of more; every third of all with a range of time."""
    combined = [dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())]
    filters = [Filter(**one) if n % 3 else Filter(**one, since=SINCE) for n, one in enumerate(combined)]
    few = [len(one.values()) - list(one.values()).count(None) <= 2 for one in combined]
    return [one for n, one in enumerate(filters) if few[n] or n % every == 0]


def _fill(connection: psycopg.Connection[Any], rows: int) -> None:
    connection.execute("set session_replication_role = replica")
    ids = {"common": TENANTS[0], "other": TENANTS[1], "rare": TENANTS[2]}
    connection.execute(FILL, {"rows": rows, **ids})
    connection.execute("reset session_replication_role")


async def _read_too_much(database: Database, watcher: psycopg.Connection[Any], every: int) -> dict[Filter, int]:
    """How many rows a page reads, for each filter where that is more than it may be."""
    counted, found = Counted(database, watcher), {}
    for matching in _filters(every):

        async def page(matching: Filter = matching) -> None:
            async with database.reading() as reading:
                await list_entries(reading, matching, after=0, limit=LIMIT)

        await counted(page())
        named = [value for value in (getattr(matching, name) for name in VALUES) if value is not None]
        examined = 2 * EXAMINED_MAX if len(named) > 1 or named == ["ok"] else LIMIT
        read = Counter(counted.rows)["audit_chain"]
        if read > examined + MORE:
            found[matching] = read
    return found


@pytest.mark.full
@pytest.mark.parametrize(
    ("rows", "every"),
    [
        (60_000, 7),
        pytest.param(60_000, 1, marks=pytest.mark.full),
        pytest.param(1_000_000, 1, marks=[pytest.mark.full, pytest.mark.timeout(1800)]),
    ],
)
def test_a_page_reads_a_bounded_number_of_rows(database_url: str, rows: int, every: int) -> None:
    async def read(mode: str) -> dict[Filter, int]:
        with connect(database_url) as watcher:
            watcher.execute(f"alter database {watcher.info.dbname} set plan_cache_mode = {mode}".encode())
            database = make_context(database_url, pool_size=1).database
            try:
                return await _read_too_much(database, watcher, every)
            finally:
                await database.close()

    with connect(database_url) as connection:
        _fill(connection, rows)
    modes = ("force_custom_plan", "force_generic_plan")
    found = {("not analysed", mode): asyncio.run(read(mode)) for mode in modes}
    with connect(database_url) as connection:
        connection.execute("vacuum analyze audit_chain")
    found |= {("analysed", mode): asyncio.run(read(mode)) for mode in modes}
    assert {when: too_much for when, too_much in found.items() if too_much} == {}
