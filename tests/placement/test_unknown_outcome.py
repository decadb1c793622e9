"""A connection lost at COMMIT: the client receives `outcome_unknown`, and its retry resolves it (P12; failure 2)."""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.operations.store.operations import Answer
from orchestrator.problems import DatabaseUnavailable, OutcomeUnknown
from tests.placement.cutting import CuttingProxy
from tests.placement.fleet import Fleet, create_all, create_of, working
from tests.support.rival_sessions import until_waiting
from tests.support.waiting import async_wait_for


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_retry_with_the_same_key_resolves_it(database_url: str, when: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    create = create_of(fleet.tenant(), gpus=4)

    async def committed() -> None:
        await async_wait_for(lambda: fleet.one("select count(*) from allocations") != 0, "the allocation")

    async def scene() -> Answer:
        async with CuttingProxy(database_url).running() as proxy, working(proxy.url) as (context, catalogue):
            await catalogue.current()
            proxy.wait_committed = committed
            proxy.arm(when)
            with pytest.raises(OutcomeUnknown) as unknown:
                await create_all(context, catalogue, [create])
            assert unknown.value.outcome == "unknown"
            assert proxy.cuts == 1
            (answer,) = await create_all(context, catalogue, [create])
            assert isinstance(answer, Answer)
            return answer

    answer = asyncio.run(scene())
    assert answer.status == 201
    assert answer.replayed == (when == "after"), "committed before the cut: the first answer; else it ran now"
    assert fleet.one("select count(*) from allocations") == 1
    assert fleet.one("select gpus_used from tenant_quotas") == 4


def test_a_session_that_the_server_ends_may_have_committed_or_not(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    create = create_of(fleet.tenant())
    watcher = Fleet.watcher(database_url)
    waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'test'"

    async def scene() -> Answer:
        async with working(database_url) as (context, catalogue):
            await catalogue.current()
            fleet.connection.execute("begin; select from tenant_quotas for update")
            creating = asyncio.create_task(create_all(context, catalogue, [create]))
            await until_waiting(database_url)
            (session,) = watcher.execute(waiting).fetchall()
            watcher.execute("select pg_terminate_backend(%s)", session)
            with pytest.raises(OutcomeUnknown):
                await creating
            fleet.connection.execute("rollback")
            (answer,) = await create_all(context, catalogue, [create])
            assert isinstance(answer, Answer)
            return answer

    assert asyncio.run(scene()).status == 201
    assert fleet.one("select count(*) from allocations") == 1


@pytest.mark.parametrize("state", ["53100", "53200", "57014", "25006"])
def test_a_full_disk_and_its_like_are_a_definite_no(database_url: str, state: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    create = create_of(fleet.tenant())
    fleet.connection.execute(
        "create function fill() returns trigger language plpgsql as"
        f" $$ begin raise exception 'planted' using errcode = '{state}'; end $$;"
        " create trigger fill before insert on outbox execute function fill()"
    )

    async def scene() -> None:
        async with working(database_url) as (context, catalogue):
            await create_all(context, catalogue, [create])

    with pytest.raises(DatabaseUnavailable) as refused:
        asyncio.run(scene())
    assert refused.value.outcome == "not_done"
    assert fleet.one("select count(*) from allocations") == 0


def test_a_database_that_cannot_be_reached_is_a_definite_no(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    create = create_of(fleet.tenant())
    unreachable = f"{database_url.rpartition(':')[0]}:1/nothing"

    async def scene() -> None:
        async with working(unreachable) as (context, catalogue):
            await create_all(context, catalogue, [create])

    with pytest.raises(DatabaseUnavailable) as refused:
        asyncio.run(scene())
    assert refused.value.outcome == "not_done"
