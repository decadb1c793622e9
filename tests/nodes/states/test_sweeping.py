"""The sweeper of drains: the right of its role suffices, and one that fails does not keep others from being released."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from migrations.roles import Role
from orchestrator.operations.execution import Context
from tests.allocations.driving import rows_of, run_with
from tests.allocations.seeding import connect, create_allocation, seed
from tests.databases import as_role
from worker.sweepers.maintenance import DrainSweeper

_DRAIN = """
update nodes set state = 'draining';
insert into node_drains (node_id, begun_by, deadline, at_deadline, waits_for, waits_since, waits_until)
select id, 'admin:a', now(), 'release', 'claims', now(), now() from nodes;
"""
_FAIL = """
create function fail() returns trigger language plpgsql as $$ begin raise exception 'this one fails'; end $$;
create trigger fails before update on allocations for each row when (old.id = '{id}') execute function fail();
"""
_RELEASING = "select id from allocations where state = 'releasing' order by id"


def test_the_role_of_the_worker_announces_and_releases(database_url: str) -> None:
    allocation = create_allocation(database_url, seed(database_url))
    with connect(database_url) as connection:
        connection.execute(_DRAIN)
    run_with(as_role(database_url, Role.WORKER), lambda context: DrainSweeper(context, 10).run())
    assert rows_of(database_url, _RELEASING) == [(allocation,)]
    assert rows_of(database_url, "select count(*) from node_drains where overdue_at is not null") == [(1,)]


def test_a_release_that_fails_keeps_none_of_the_others_off(database_url: str) -> None:
    seeded = seed(database_url)
    failing, *others = (create_allocation(database_url, seeded) for _ in range(3))
    with connect(database_url) as connection:
        connection.execute(_DRAIN)
        connection.execute(_FAIL.format(id=UUID(str(failing))).encode())

    async def rounds(context: Context) -> None:
        sweeper = DrainSweeper(context, 1)
        for _ in range(5):
            with suppress(DBAPIError):
                await sweeper.run()

    run_with(as_role(database_url, Role.WORKER), rounds)
    assert rows_of(database_url, _RELEASING) == [(one,) for one in sorted(others)]
    with connect(database_url) as connection:
        connection.execute("drop trigger fails on allocations")
    run_with(as_role(database_url, Role.WORKER), lambda context: DrainSweeper(context, 1).run())
    assert len(rows_of(database_url, _RELEASING)) == 3, "and that one is tried again"
