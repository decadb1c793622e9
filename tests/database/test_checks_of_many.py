"""The checks of `berth verify` over a fleet in use: all are kept, and none compares each row of a table with each of another."""

from __future__ import annotations

from typing import Any, cast

import psycopg
import pytest
from psycopg.sql import SQL, Composable, Composed

from benchmarks.large.in_use import seed_active, seed_more_tenants
from benchmarks.seeding import seed_fleet
from benchmarks.verify import seed_history
from orchestrator.verification import CHECKS, Bounds, Verdict
from orchestrator.verification.all_checks import Check

NODES, TENANTS, ENDED, OF_EACH = 250, 20, 2_000, 4
COMPARED_MAX = 50_000
"""Pairs of rows that one join may compare and drop. Each slot with each active allocation would be 1,800,000."""


class Explaining:
    """A connection that notes how many pairs of rows each statement's joins compared in vain."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.dropped = 0

    def execute(self, query: str | bytes | Composable, parameters: Any = None) -> psycopg.Cursor[Any]:
        text = Composed([query if isinstance(query, Composable) else SQL(cast("Any", query))])
        explain = Composed([SQL("explain (analyze, timing off, summary off, format json) "), text])
        row = self._connection.execute(explain, parameters).fetchone()
        assert row is not None
        self.dropped = max(self.dropped, *dropped_by(row[0][0]["Plan"]))
        return self._connection.execute(text, parameters)


def dropped_by(plan: dict[str, Any]) -> list[int]:
    """Pairs that each node of a plan dropped, over all of its loops."""
    found = [int(plan.get("Rows Removed by Join Filter", 0) * plan["Actual Loops"])]
    for part in plan.get("Plans", ()):
        found += dropped_by(part)
    return found


@pytest.fixture
def in_use(database_url: str) -> str:
    """Nodes with ended and active allocations."""
    seed_fleet(database_url, NODES)
    seed_more_tenants(database_url, TENANTS)
    seed_history(database_url, ENDED)
    assert seed_active(database_url, OF_EACH) == NODES * 9 // 10 * OF_EACH
    return database_url


def test_every_check_is_kept_and_compares_no_table_with_itself(in_use: str) -> None:
    with psycopg.connect(in_use, autocommit=True) as connection:
        dropped: dict[str, int] = {}
        broken: dict[str, list[str]] = {}
        for check in CHECKS:
            verdict, found = explained(connection, check)
            broken |= {verdict.promise: verdict.violations} if verdict.violations else {}
            dropped |= {verdict.promise: found} if found > COMPARED_MAX else {}
    assert (broken, dropped) == ({}, {})


def explained(connection: psycopg.Connection[Any], check: Check) -> tuple[Verdict, int]:
    """What the check found, and the most pairs that one of its joins dropped."""
    explaining = Explaining(connection)
    return check(cast("Any", explaining), Bounds()), explaining.dropped


def test_a_join_of_all_pairs_is_noticed(in_use: str) -> None:
    with psycopg.connect(in_use, autocommit=True) as connection:
        explaining = Explaining(connection)
        explaining.execute(
            "select count(*) from slots s join claims c on c.units @> s.unit + 0 where c.closed_at is null"
        )
    assert explaining.dropped > COMPARED_MAX
