"""Bounds on tables: exact, judged before any effect, never in the way of what ends something; counts that are right."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.table_bounds import Table, count_rows, gather_counts, require_room
from orchestrator.database.transactions import Transaction, connect_database
from orchestrator.operations.commands import Question, ask_operation, retire_operations
from orchestrator.operations.execution import Context, Done, Limits, run_once
from orchestrator.operations.refusals import OperationTableFull
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import NotFound, Problem, SlotOverflow
from tests.placement.fleet import Fleet, create_all, create_of
from tests.support.rival_sessions import until_waiting
from tests.support.waiting import wait_for

TENANT = uuid.uuid4()
COUNTED = """
select 'operations', count(*) from operations
union all select 'resources', count(*) from resources
union all select 'reservations', count(*) from reservations where state in ('hold', 'confirmed')
union all select 'holds', count(*) from reservations where state = 'hold'
"""


@asynccontextmanager
async def bounded(url: str, operations_max: int | None) -> AsyncIterator[Context]:
    """A context whose sessions let there be so many operations."""
    database = connect_database(
        url, pool_size=8, reserve_size=1, lock_timeout_seconds=10, transaction_timeout_seconds=30, application="test",
        operations_max=operations_max,
    )  # fmt: skip
    try:
        yield Context(database, Limits())
    finally:
        await database.close()


def operation(*, ending: bool = False, key: str = "") -> Operation:
    return Operation(TENANT, key or str(uuid.uuid4()), b"a" * 32, 3_600.0, ending=ending)


async def done(_: Transaction) -> Done:
    return Done(200, {})


async def refused(_: Transaction) -> Done:
    raise NotFound("nothing here")


def rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def kept_counts(url: str) -> dict[str, int]:
    """How many rows each bounded table has, by the counts that are kept."""

    async def kept() -> dict[Table, int]:
        async with bounded(url, None) as context, context.database.reading() as reading:
            return await count_rows(reading)

    return {table.value: number for table, number in asyncio.run(kept()).items()}


def test_the_bound_is_exact_however_many_come_at_once(database_url: str) -> None:
    async def scene() -> list[Answer | BaseException]:
        async with bounded(database_url, 10) as context:
            writes = [run_once(context, operation(), done, TENANT) for _ in range(40)]
            return list(await asyncio.gather(*writes, return_exceptions=True))

    found = Counter(type(one).__name__ for one in asyncio.run(scene()))
    assert found == {"Answer": 10, "OperationTableFull": 30}
    assert kept_counts(database_url) == dict(rows(database_url, COUNTED))


def test_a_full_table_refuses_before_any_effect_and_still_answers_what_it_knows(database_url: str) -> None:
    known = operation()
    ran: list[str] = []

    async def effect(tx: Transaction) -> Done:
        ran.append("effect")
        return await done(tx)

    async def scene() -> None:
        async with bounded(database_url, 2) as context:
            first = await run_once(context, known, done, TENANT)
            await run_once(context, operation(), refused, TENANT)
            with pytest.raises(OperationTableFull) as full:
                await run_once(context, operation(), effect, TENANT)
            assert (full.value.status, full.value.code, full.value.outcome) == (503, "operation_table_full", "not_done")
            again = await run_once(context, known, effect, TENANT)
            assert (again.body, again.replayed) == (first.body, True)
            with pytest.raises(OperationTableFull):
                await ask_operation(context, Question(TENANT, "never used", TENANT))
            told = await ask_operation(context, Question(TENANT, known.key, TENANT))
            assert told.state == "committed"

    asyncio.run(scene())
    assert ran == []
    assert rows(database_url, "select count(*) from operations") == [(2,)]


def test_what_ends_something_is_never_refused_and_takes_room_from_the_rest(database_url: str) -> None:
    async def scene() -> None:
        async with bounded(database_url, 3) as context:
            for effect in (done, done, refused, done, done):
                await run_once(context, operation(ending=True), effect, TENANT)
            with pytest.raises(OperationTableFull):
                await run_once(context, operation(), done, TENANT)

    asyncio.run(scene())
    assert rows(database_url, "select count(*) from operations where ending") == [(5,)]


def test_a_sweep_makes_room_again(database_url: str) -> None:
    async def scene() -> None:
        async with bounded(database_url, 3) as context:
            for _ in range(3):
                await run_once(context, replace(operation(), retention_seconds=0.0), done, TENANT)
            with pytest.raises(OperationTableFull):
                await run_once(context, operation(), done, TENANT)
            assert await retire_operations(context, 2) == 2
            for _ in range(2):
                await run_once(context, operation(), done, TENANT)
            with pytest.raises(OperationTableFull):
                await run_once(context, operation(), done, TENANT)

    asyncio.run(scene())
    assert kept_counts(database_url) == dict(rows(database_url, COUNTED))


def test_creates_that_come_together_get_what_room_there_is(database_url: str) -> None:
    """Five in one list, room for three; a refusal for want of a node needs room as well, and gives it back."""
    fleet = Fleet(database_url, slice_nodes=1)
    tenant = fleet.tenant()
    creates = [create_of(tenant) for _ in range(5)]

    async def scene() -> list[Answer | Problem]:
        async with bounded(database_url, 3) as context:
            return await create_all(context, CatalogueCache(context.database, 1.0), creates)

    found = Counter(one.code if isinstance(one, Problem) else str(one.status) for one in asyncio.run(scene()))
    assert found == {"201": 3, "operation_table_full": 2}
    assert fleet.one("select count(*) from allocations") == 3
    assert fleet.one("select count(*) from claims") == 3
    assert kept_counts(database_url) == dict(rows(database_url, COUNTED))


def test_far_from_the_bound_no_create_waits_for_another(database_url: str) -> None:
    """A transaction that has added an operation and does not end holds up others only where the bound is near."""
    holder = psycopg.connect(database_url, options="-c berth.operations_max=1000000")
    insert = "insert into operations (scope, key, fingerprint, status, retire_after) values (%s, 'a', %s, 200, now())"
    holder.execute(insert, (TENANT, b"a" * 32))
    near = "select count(*) from pg_locks where locktype = 'advisory'"
    assert rows(database_url, near) == [(0,)]
    holder.execute("set berth.operations_max = 1000")
    holder.execute(insert.replace("'a'", "'b'"), (TENANT, b"a" * 32))
    assert rows(database_url, near) == [(1,)]
    holder.rollback()
    assert kept_counts(database_url) == dict(rows(database_url, COUNTED))


@pytest.mark.parametrize(
    ("table", "code"),
    [
        (Table.OPERATIONS, "operation_table_full"),
        (Table.RESOURCES, "resource_table_full"),
        (Table.RESERVATIONS, "reservation_table_full"),
        (Table.HOLDS, "expiration_index_full"),
    ],
)
def test_each_table_has_its_refusal(database_url: str, table: Table, code: str) -> None:
    async def scene() -> Problem:
        async with bounded(database_url, None) as context, context.database.transaction() as tx:
            await require_room(tx, table, 3, rows=3)
            with pytest.raises(Problem) as refusal:
                await require_room(tx, table, 3, rows=4)
            return refusal.value

    refusal = asyncio.run(scene())
    assert (refusal.code, refusal.status, refusal.outcome, refusal.business) == (code, 503, "not_done", False)


def test_room_that_was_found_stays_until_the_commit(database_url: str) -> None:
    """Two look while there is room for one: the second waits for the first, and finds none."""
    insert = "insert into resources (id) values (:id)"
    looked = asyncio.Event()

    async def register(context: Context, id_: str, hold: asyncio.Event) -> None:
        async with context.database.transaction() as tx:
            await require_room(tx, Table.RESOURCES, 1)
            looked.set()
            await tx.execute(insert, {"id": id_})
            await hold.wait()

    async def scene() -> None:
        async with bounded(database_url, None) as context:
            go_on, at_once = asyncio.Event(), asyncio.Event()
            at_once.set()
            first = asyncio.create_task(register(context, "a", go_on))
            await looked.wait()
            second = asyncio.create_task(register(context, "b", at_once))
            await until_waiting(database_url)
            go_on.set()
            await first
            with pytest.raises(Problem, match="1 resources are registered"):
                await second

    asyncio.run(scene())
    assert rows(database_url, "select id from resources") == [("a",)]


def test_a_retirement_beyond_all_times_is_a_slot_overflow(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    create = create_of(fleet.tenant())
    far = replace(create, operation=replace(create.operation, retention_seconds=1e13))

    async def scene() -> None:
        async with bounded(database_url, None) as context:
            for effect in (done, refused):
                with pytest.raises(SlotOverflow) as overflow:
                    await run_once(context, replace(operation(), retention_seconds=1e13), effect, TENANT)
                assert (overflow.value.status, overflow.value.outcome) == (422, "not_done")
            with pytest.raises(SlotOverflow):
                await create_all(context, CatalogueCache(context.database, 1.0), [far])

    asyncio.run(scene())
    assert fleet.one("select count(*) from operations") == 0
    assert fleet.one("select count(*) from allocations") == 0


def test_what_sessions_that_are_gone_have_counted_is_gathered(database_url: str) -> None:
    async def write(writes: int) -> None:
        async with bounded(database_url, None) as context:
            await asyncio.gather(*(run_once(context, operation(), done, TENANT) for _ in range(writes)))

    async def gather() -> int:
        async with bounded(database_url, None) as context, context.database.transaction() as tx:
            return await gather_counts(tx)

    for _ in range(3):
        asyncio.run(write(16))
    stripes = "select count(*) from live_rows where kind = 'operations'"
    sessions = "select from pg_stat_activity where application_name = 'test'"
    wait_for(lambda: not rows(database_url, sessions), "the sessions to end")
    assert rows(database_url, stripes)[0][0] > 1
    assert asyncio.run(gather()) > 1
    assert kept_counts(database_url) == dict(rows(database_url, COUNTED))
    assert rows(database_url, stripes) == [(1,)]


_RESERVATION = """
insert into reservations (id, position, tenant_id, holder_id, resources, gpus_held, starts_at, hold_until, expires_at,
    operation_key, operation_fingerprint, correlation_id, held_at, held_event, waits_for, waits_since, waits_until)
select reservation_id(0, n), n, gen_random_uuid(), 'h', '{x}', 0, now(), now(), now(), n::text, '', gen_random_uuid(), now(),
       gen_random_uuid(), 'confirm', now(), now()
from (select nextval('reservation_positions') as n from generate_series(1, %s)) positions
"""
_END = ", ended_at = now(), ended_event = gen_random_uuid(), retire_after = now(), waits_for = null, waits_since = null"
_HISTORIES = {
    "add operations": "insert into operations (scope, key, fingerprint, retire_after) select gen_random_uuid(), 'k',"
    " decode(repeat('ab', 32), 'hex'), now() from generate_series(1, %s)",
    "remove operations": "delete from operations where ctid = any (array(select ctid from operations limit %s))",
    "touch operations": "update operations set status = 200 where ctid = any (array(select ctid from operations limit %s))",
    "empty operations": "truncate operations",
    "add resources": "insert into resources (id) select 'r' || nextval('fences') from generate_series(1, %s)",
    "remove resources": "delete from resources where id in (select id from resources limit %s)",
    "touch resources": "update resources set row_version = row_version + 1 where id in (select id from resources limit %s)",
    "hold": _RESERVATION,
    "confirm": "update reservations set state = 'confirmed', row_version = row_version + 1, expires_at = null,"
    " confirmed_at = now() where id in (select id from reservations where state = 'hold' limit %s)",
    "expire": f"update reservations set state = 'expired', row_version = row_version + 1 {_END}, waits_until = null"
    " where id in (select id from reservations where state = 'hold' limit %s)",
    "release": f"update reservations set state = 'released', row_version = row_version + 1 {_END}, waits_until = null"
    " where id in (select id from reservations where state = 'confirmed' limit %s)",
    "retire": "delete from reservations where id in (select id from reservations where retire_after is not null limit %s)",
    "erase": "delete from reservations where id in (select id from reservations limit %s)",
    "empty reservations": "truncate reservations",
}
_STEPS = st.tuples(st.sampled_from(sorted(_HISTORIES)), st.integers(0, 4), st.booleans(), st.integers(0, 2))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_STEPS, min_size=1, max_size=25))
def test_the_counts_are_right_after_any_history(database_url: str, steps: list[tuple[str, int, bool, int]]) -> None:
    """By three sessions, some of whose statements are taken back."""
    sessions = [psycopg.connect(database_url, autocommit=True) for _ in range(3)]
    try:
        for name, number, commits, session in steps:
            statement = _HISTORIES[name]
            with sessions[session].transaction(force_rollback=not commits):
                sessions[session].execute(statement.encode(), (number,) if "%s" in statement else None)
        assert kept_counts(database_url) == dict(rows(database_url, COUNTED))
    finally:
        for connection in sessions:
            connection.close()


def test_every_step_of_the_histories_does_something(database_url: str) -> None:
    """Otherwise they would show less than they say."""
    order = [
        "add operations", "touch operations", "remove operations", "empty operations",
        "add resources", "touch resources", "remove resources",
        "hold", "confirm", "hold", "expire", "release", "retire", "erase",
    ]  # fmt: skip
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_HISTORIES["hold"].encode(), (2,))
        for name in order:
            statement = _HISTORIES[name]
            done_ = connection.execute(statement.encode(), (1,) if "%s" in statement else None)
            assert done_.rowcount == (-1 if name.startswith("empty") else 1), name
    assert {*order, "empty reservations"} == set(_HISTORIES)
    assert kept_counts(database_url) == dict(rows(database_url, COUNTED))
