"""What has ended costs nothing: each thing that is done with reservations reads as few rows with a past as without one.

Counted, not timed. Three times with the past in the tables: by a session that has planned everything while there was none,
by a young one while nothing is known of the tables, and by a young one once they are analysed.

Under the policies of the public API's role (migrations/policies.sql): a filter that is not leakproof would be no condition of an
index.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg._preparing import PrepareManager

from benchmarks.past import fill_past, vacuum_past
from berth.local.servers import LocalPostgres
from migrations.roles import Role
from tests.allocations.seeding import connect, make_context
from tests.database.routes import PAGE, ROUTES, SWEPT
from tests.database.stage import claim_slots, read_by_each_route, seed_history

Reads = dict[str, Counter[str]]
HISTORY = ("claims", "reservations", "allocations", "operations", "log")
FLEET = ("nodes", "slots", "resources")
OF_THE_WHOLE_FLEET = {"look_for_availability", "count_for_metrics"}
OF_THE_MANY = (
    "hold_a_slot", "hold_a_bundle_in_a_window", "hold_what_is_busy", "hold_what_is_overdue", "hold_gpus", "confirm",
    "create", "create_where_nothing_is_free", "show_a_slot", "list_slots", "turn_over", "turn_over_the_last_claim",
    "turn_over_again_under_a_key_whose_answer_is_forgotten",
)  # fmt: skip
"""What is asked for all the time."""
MORE_MAX = 3 * (PAGE + SWEPT)
"""What a page and a round of a sweeper read of what there was not before, and dead index entries that are not vacuumed yet."""


@pytest.fixture
def limited_url(postgres_server: LocalPostgres, database_url: str) -> Iterator[str]:
    """The database as a role with the rights of every process, which the policies limit as they do the public API's."""
    name = f"limited_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute(
            f"create role {name} login password '{postgres_server.password}' in role {', '.join(Role)}".encode()
        )
        yield database_url.replace("//postgres:", f"//{name}:", 1)
        connection.execute(f"drop role {name}".encode())


# Half a minute. tests/database/test_indexes.py checks the plan of each index in `make test`.
@pytest.mark.full
@pytest.mark.parametrize(
    ("nodes", "past"),
    [(3_000, 12_000), pytest.param(50_000, 1_000_000, marks=[pytest.mark.full, pytest.mark.timeout(3600)])],
)
def test_the_past_is_not_read(
    database_url: str, limited_url: str, monkeypatch: pytest.MonkeyPatch, nodes: int, past: int
) -> None:
    seeded = seed_history(database_url, nodes)
    began = datetime.now(UTC)
    # A statement's first plan is the one that its session keeps.
    monkeypatch.setattr(PrepareManager, "prepare_threshold", 0)
    with connect(database_url) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set plan_cache_mode = force_generic_plan".encode())

    async def story() -> tuple[Reads, dict[str, Reads]]:
        old = make_context(limited_url, pool_size=1).for_platform()
        without = await read_by_each_route(old, database_url, seeded, began)
        fill_past(database_url, past)
        beside = {"planned while empty": await read_by_each_route(old, database_url, seeded, began)}
        await old.database.close()
        for when in ("not analysed", "analysed"):
            young = make_context(limited_url, pool_size=1).for_platform()
            beside[when] = await read_by_each_route(young, database_url, seeded, began)
            await young.database.close()
            vacuum_past(database_url)
        return without, beside

    without, beside = asyncio.run(story())
    more = {
        (when, way, table): (without[way][table], reads[way][table])
        for when, reads in beside.items() for way in ROUTES for table in HISTORY
        if reads[way][table] > without[way][table] + MORE_MAX
    }  # fmt: skip
    assert more == {}
    whole = {
        (when, way, table): reads[way][table]
        for when, reads in beside.items() for way in ROUTES.keys() - OF_THE_WHOLE_FLEET for table in FLEET
        if reads[way][table] > MORE_MAX
    }  # fmt: skip
    assert whole == {}


@pytest.mark.full
def test_unseen_open_claims_are_not_read(database_url: str, limited_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Analysed while no claim was open, the planner takes an index of open claims for a cheap way to any of them.

    What is asked seldom may take that way until the table is analysed again, after a few thousand changes.
    """
    seeded = seed_history(database_url, 1_500)
    began = datetime.now(UTC)
    monkeypatch.setattr(PrepareManager, "prepare_threshold", 0)
    with connect(database_url) as connection:
        connection.execute("delete from claims")
        connection.execute("delete from reservations")
    fill_past(database_url, 3_000)
    vacuum_past(database_url)
    assert claim_slots(database_url) > 2 * MORE_MAX

    async def story() -> Reads:
        young = make_context(limited_url, pool_size=1).for_platform()
        reads = await read_by_each_route(young, database_url, seeded, began)
        await young.database.close()
        return reads

    reads = asyncio.run(story())
    assert {way: reads[way]["claims"] for way in OF_THE_MANY if reads[way]["claims"] > MORE_MAX} == {}
