"""The reads of windows use their indexes, and what is over costs them nothing: counted, not timed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from orchestrator.placement.admission import Wanted, admit_units
from orchestrator.placement.store.windows import find_room
from tests.placement.fleet import Fleet, working

NODES = 600
NOW = datetime.now(UTC)
MONTH = timedelta(days=30)
CLASSES = [low * 64 + high for low in range(5) for high in range(5)]
BOOK = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, fence)
select id, gen_random_uuid(), 'reservation', gen_random_uuid(), int8multirange(int8range(unit_base, unit_base + 7)),
       tstzrange(%(now)s + day * interval '1 day', %(now)s + (day + 1) * interval '1 day'), 1
from nodes, generate_series(1, 6) day;
"""
PAST = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, booked, fence, closed_at)
select id, gen_random_uuid(), 'reservation', gen_random_uuid(), int8multirange(int8range(unit_base, unit_base + 7)),
       tstzrange(%(now)s - day * interval '1 day', %(now)s + day * interval '1 day'), false, 1, %(now)s
from nodes, generate_series(1, 100) day;
"""
READS = {
    "pools_in_time": ("select length(blocks) from pools_in_time('{1}', %(now)s, %(now)s)", NODES * 6 * 28),
    "nodes_in_window": (
        "select count(*) from nodes_in_window(1, %(now)s, %(end)s, %(now)s, null, %(classes)s::smallint[], 64)",
        64,
    ),
}


def touched(connection: psycopg.Connection[Any], read: str) -> dict[str, tuple[int, int]]:
    """Sequential scans of each large table, and rows fetched by index, that one read takes."""
    sql, answer = READS[read]
    _forget_what_was_counted(connection)
    with connection.transaction():
        found = connection.execute(sql.encode(), {"now": NOW, "end": NOW + MONTH, "classes": CLASSES}).fetchone()
        assert found == (answer,)
        rows = connection.execute(
            "select relname, seq_scan, idx_tup_fetch from pg_stat_xact_user_tables"
            " where relname in ('claims', 'nodes', 'slots', 'reservations')"
        ).fetchall()
    return {row[0]: (row[1], row[2]) for row in rows}


def _forget_what_was_counted(connection: psycopg.Connection[Any]) -> None:
    """A session's counts of earlier transactions stay in `pg_stat_xact_*` until it hands them over, once a second."""
    connection.execute("select pg_stat_force_next_flush()")


@pytest.mark.full
@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("read", READS)
def test_no_table_is_read_whole_and_history_is_not_read_at_all(database_url: str, read: str, analysed: bool) -> None:
    fleet = Fleet(database_url, slice_nodes=NODES)
    connection = fleet.connection
    connection.execute("alter table claims set (autovacuum_enabled = false)")
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(BOOK.encode(), {"now": NOW})
    connection.execute("vacuum analyze claims, nodes, slots, reservations" if analysed else "select")
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(PAST.encode(), {"now": NOW})
    after = touched(connection, read)
    assert all(scans == 0 for scans, _ in after.values()), after
    # 3,600 claims are open, 60,000 are closed; the open ones are gone through at most three times.
    assert after["claims"][1] <= 3 * NODES * 6


def test_the_search_of_what_is_free_for_ever_takes_one_probe_a_class(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=NODES)
    fleet.connection.execute("vacuum analyze nodes")

    async def way() -> tuple[int, int]:
        async with working(database_url) as (context, catalogue):
            units = admit_units(await catalogue.current(), Wanted("h100.slice", 8, "eu-1", None))
            async with context.database.reading() as reading:
                assert len((await find_room(reading, units, None, None, 3)).picks) == 3
                row = (
                    await reading.execute(
                        "select seq_scan, idx_tup_fetch from pg_stat_xact_user_tables where relname = 'nodes'"
                    )
                ).one()
                return row.seq_scan, row.idx_tup_fetch

    scans, fetched = asyncio.run(way())
    assert scans == 0
    assert fetched <= 3
