"""What a benchmark does between two trials works on the tables as they are."""

from __future__ import annotations

from benchmarks.seeding import empty_fleet, seed_fleet, seed_tenants
from tests.allocations.seeding import connect
from tests.database.index_queries import fill

_LEFT = "select (select count(*) from allocations), (select count(*) from claims)"


def test_a_filled_fleet_is_emptied(database_url: str) -> None:
    seed_fleet(database_url, 3)
    seed_tenants(database_url, 1)
    with connect(database_url) as connection:
        fill(connection, filled=1)
        assert connection.execute(_LEFT).fetchone() == (3, 3)
    empty_fleet(database_url)
    with connect(database_url) as connection:
        assert connection.execute(_LEFT).fetchone() == (0, 0)
