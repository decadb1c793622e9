"""A status query fences a key: a later request is refused on every path, an earlier one is reported."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.transactions import Transaction
from orchestrator.operations.commands import OperationOutcome, Question, ask_operation
from orchestrator.operations.execution import Context, Done, Result, run_once
from orchestrator.operations.states import OperationState
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.placement.store.placing import Create
from orchestrator.problems import Invalid, NotFound, OperationConflict, OperationFenced, Problem
from tests.placement.fleet import Fleet, create_all, create_of, fresh_fingerprint, working
from tests.support.rival_sessions import until_waiting
from tests.support.waiting import async_wait_for

Scene = Callable[[Context, CatalogueCache], Awaitable[Any]]


def run(
    url: str, scene: Scene, lock_timeout_seconds: float = 5.0, operation_retention_seconds: float = 86_400.0
) -> Any:
    """Play a scene over the database."""

    async def play() -> Any:
        async with working(url, lock_timeout_seconds=lock_timeout_seconds) as (context, catalogue):
            limits = replace(context.limits, operation_retention_seconds=operation_retention_seconds)
            return await scene(replace(context, limits=limits), catalogue)

    return asyncio.run(play())


def question(operation: Operation, since: datetime | None = None) -> Question:
    """What a tenant asks about its operation."""
    return Question(operation.scope, operation.key, operation.scope, since)


def operation(key: str = "k", content: str = "a") -> Operation:
    """A write of a new tenant's."""
    return Operation(uuid.uuid4(), key, content.encode().ljust(32), 86_400.0)


class Effect:
    """Counts how often it runs; `refusal` is raised after it was counted."""

    def __init__(self, refusal: Problem | None = None) -> None:
        self.runs = 0
        self._refusal = refusal

    async def __call__(self, tx: Transaction) -> Done:
        self.runs += 1
        if self._refusal is not None:
            raise self._refusal
        return Done(200, {"run": self.runs}, None)


def count(url: str, statement: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(statement.encode()).fetchone()
        assert row is not None
        return int(row[0])


def test_an_effect_is_returned_with_its_answer(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    create = create_of(fleet.tenant())

    async def scene(context: Context, catalogue: CatalogueCache) -> tuple[Result, OperationOutcome]:
        (answer,) = await create_all(context, catalogue, [create])
        return answer, await ask_operation(context, question(create.operation))

    answer, told = run(database_url, scene)
    assert (told.state, told.known.status, told.known.body) == (OperationState.COMMITTED, 201, answer.body)
    assert str(told.known.subject_id) == json.loads(answer.body)["allocation_id"]


def test_a_refusal_is_returned_with_its_document(database_url: str) -> None:
    own, effect = operation(), Effect(NotFound("nothing here"))

    async def scene(context: Context, _: CatalogueCache) -> tuple[Answer, OperationOutcome]:
        return await run_once(context, own, effect, own.scope), await ask_operation(context, question(own))

    answer, told = run(database_url, scene)
    assert (told.state, told.known.code, told.known.body) == (OperationState.REJECTED, "not_found", answer.body)


def test_a_late_write_is_refused_and_never_runs(database_url: str) -> None:
    own, effect = operation(), Effect()

    async def scene(context: Context, _: CatalogueCache) -> list[OperationOutcome]:
        told = [await ask_operation(context, question(own))]
        for late in (own, replace(own, fingerprint=b"b" * 32)):
            with pytest.raises(OperationFenced) as fenced:
                await run_once(context, late, effect, own.scope)
            assert (fenced.value.status, fenced.value.outcome) == (409, "not_done")
        return [*told, await ask_operation(context, question(own))]

    told = run(database_url, scene)
    assert [one.state for one in told] == [OperationState.UNKNOWN] * 2
    assert effect.runs == 0
    assert count(database_url, "select count(*) from outbox where payload ->> 'code' = 'operation_fenced'") == 1


def test_a_late_create_is_refused_and_harms_no_other_in_its_list(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    tenant = fleet.tenant()
    late, other, refused = create_of(tenant), create_of(tenant), create_of(tenant, gpus=3)

    async def scene(context: Context, catalogue: CatalogueCache) -> list[Result]:
        for asked in (late, refused):
            assert (await ask_operation(context, question(asked.operation))).state is OperationState.UNKNOWN
        return list(await create_all(context, catalogue, [late, other, refused]))

    first, second, third = run(database_url, scene)
    assert isinstance(first, OperationFenced)
    assert isinstance(second, Answer)
    assert second.status == 201
    assert isinstance(third, OperationFenced), "a create that the catalogue would refuse comes too late as well"
    assert fleet.one("select count(*) from allocations") == 1


def test_a_tombstone_is_the_askers_alone(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    mine, theirs = create_of(fleet.tenant(), key="same"), create_of(fleet.tenant(), key="same")

    async def scene(context: Context, catalogue: CatalogueCache) -> list[Result]:
        await ask_operation(context, question(mine.operation))
        return list(await create_all(context, catalogue, [theirs]))

    (answer,) = run(database_url, scene)
    assert answer.status == 201


def test_a_query_waits_for_a_create_in_flight_and_returns_its_outcome(database_url: str) -> None:
    """The create comes first: its transaction is held at the quota's lock while the question waits for its key."""
    fleet = Fleet(database_url, slice_nodes=1)
    create = create_of(fleet.tenant())
    fleet.connection.execute("begin; select from tenant_quotas for update")

    async def scene(context: Context, catalogue: CatalogueCache) -> tuple[Result, OperationOutcome]:
        creating = asyncio.create_task(create_all(context, catalogue, [create]))
        await until_waiting(database_url, 1)
        asking = asyncio.create_task(ask_operation(context, question(create.operation)))
        await until_waiting(database_url, 2)
        assert not asking.done()
        fleet.connection.execute("rollback")
        return (await creating)[0], await asking

    answer, told = run(database_url, scene)
    assert answer.status == 201
    assert (told.state, told.known.body) == (OperationState.COMMITTED, answer.body)


def test_a_query_waits_for_a_write_in_flight_that_has_no_effect(database_url: str) -> None:
    """The first attempt rolls back. Its refusal, stored in a second transaction, comes before the question or too late."""
    own = operation()
    watcher = Fleet.watcher(database_url)
    going = asyncio.Event()

    async def scene(context: Context, _: CatalogueCache) -> tuple[OperationOutcome, Answer | BaseException]:
        async def effect(tx: Transaction) -> Done:
            await tx.execute("select 1")
            await going.wait()
            raise NotFound("nothing here")

        writing = asyncio.create_task(run_once(context, own, effect, own.scope))
        await async_wait_for(lambda: _held(watcher), "the effect to begin")
        asking = asyncio.create_task(ask_operation(context, question(own)))
        await until_waiting(database_url, 1)
        going.set()
        told, written = await asyncio.gather(asking, writing, return_exceptions=True)
        assert isinstance(told, OperationOutcome)
        return told, written

    told, written = run(database_url, scene)
    if told.state is OperationState.UNKNOWN:
        assert isinstance(written, OperationFenced)
    else:
        assert told.state is OperationState.REJECTED
        assert written == Answer(404, told.known.body)


def test_a_key_that_is_held_longer_than_we_wait_is_pending(database_url: str) -> None:
    own = operation()
    holder = psycopg.connect(database_url)
    holder.execute(
        "insert into operations (scope, key, fingerprint, retire_after) values (%s, %s, %s, now())",
        (own.scope, own.key, own.fingerprint),
    )

    async def scene(context: Context, _: CatalogueCache) -> tuple[OperationOutcome, OperationOutcome]:
        first = await ask_operation(context, question(own))
        holder.rollback()
        return first, await ask_operation(context, question(own))

    first, then = run(database_url, scene, lock_timeout_seconds=0.2)
    assert (first.state, first.known) == (OperationState.PENDING, None)
    assert then.state is OperationState.UNKNOWN


def test_questions_and_creates_at_once_never_contradict_each_other(database_url: str) -> None:
    """Forty keys, each created twice and asked about twice: two thirds at the same moment, the others after their creates."""
    fleet = Fleet(database_url, slice_nodes=12)
    tenant = fleet.tenant()
    creates = [create_of(tenant) for _ in range(40)]

    async def scene(context: Context, catalogue: CatalogueCache) -> list[list[Any]]:
        async def about(create: Create, turn: int) -> list[Any]:
            asks = [ask_operation(context, question(create.operation)) for _ in range(2)]
            makes = [create_all(context, catalogue, [create]) for _ in range(2)]
            if turn % 3 == 0:
                made = await asyncio.gather(*makes)
                return [*made, *await asyncio.gather(*asks)]
            jobs = [*asks, *makes] if turn % 3 == 1 else [*makes, *asks]
            return list(await asyncio.gather(*jobs))

        return list(await asyncio.gather(*(about(create, turn) for turn, create in enumerate(creates))))

    seen: Counter[str] = Counter()
    for create, found in zip(creates, run(database_url, scene), strict=True):
        told = {one.state for one in found if isinstance(one, OperationOutcome)}
        answers = [one[0] for one in found if isinstance(one, list)]
        made = fleet.one("select count(*) from allocations where operation_key = %s", create.operation.key)
        assert len(told) == 1, told
        if told == {OperationState.COMMITTED}:
            assert made == 1
            assert {answer.status for answer in answers} == {201}
        else:
            assert told == {OperationState.UNKNOWN}
            assert made == 0
            assert all(isinstance(answer, OperationFenced) for answer in answers), answers
        seen.update(told)
    assert seen.keys() == {OperationState.COMMITTED, OperationState.UNKNOWN}, f"one order never happened: {seen}"


def test_before_the_horizon_the_outcome_is_unknown_and_nothing_is_fenced(database_url: str) -> None:
    own, effect = operation(), Effect()
    now = datetime.now(UTC)

    async def scene(context: Context, _: CatalogueCache) -> tuple[OperationOutcome, Answer, OperationOutcome]:
        told = await ask_operation(context, question(own, now - timedelta(hours=25)))
        answer = await run_once(context, own, effect, own.scope)
        return told, answer, await ask_operation(context, question(own, now - timedelta(hours=25)))

    told, answer, again = run(database_url, scene)
    assert (told.state, told.known) == (OperationState.RETIRED, None)
    assert (answer.status, again.state) == (200, OperationState.COMMITTED), "a stored record is returned, however old"
    assert effect.runs == 1
    assert count(database_url, "select count(*) from outbox where event_type = 'operation.refused'") == 0


@pytest.mark.parametrize(
    ("age", "state"),
    [
        (timedelta(seconds=0), OperationState.UNKNOWN),
        (timedelta(hours=23, minutes=58), OperationState.UNKNOWN),
        (timedelta(hours=23, minutes=59, seconds=30), OperationState.RETIRED),
        (timedelta(hours=24), OperationState.RETIRED),
        (timedelta(days=700_000), OperationState.RETIRED),
    ],
)
def test_the_horizon_leaves_room_for_a_clock_that_is_off(
    database_url: str, age: timedelta, state: OperationState
) -> None:
    async def scene(context: Context, _: CatalogueCache) -> OperationOutcome:
        return await ask_operation(context, question(operation(), datetime.now(UTC) - age))

    assert run(database_url, scene).state is state


def test_a_tombstone_speaks_of_the_time_at_which_it_was_laid(database_url: str) -> None:
    """Asked again when the first attempt has passed the horizon: what was definite stays so."""
    own = operation()
    began = datetime.now(UTC)

    async def scene(context: Context, _: CatalogueCache) -> list[OperationOutcome]:
        told = [await ask_operation(context, question(own, began))]
        later = "update operations set created_at = created_at + interval '{0} hours'"
        for hours in (20, 10):
            with psycopg.connect(database_url) as connection:
                connection.execute(later.format(hours).encode())
            told.append(await ask_operation(context, question(own, began)))
        return told

    states = [told.state for told in run(database_url, scene)]
    assert states == [OperationState.UNKNOWN, OperationState.UNKNOWN, OperationState.RETIRED]


def test_a_first_attempt_in_the_future_is_refused_and_fences_nothing(database_url: str) -> None:
    async def scene(context: Context, _: CatalogueCache) -> None:
        with pytest.raises(Invalid, match="future"):
            await ask_operation(context, question(operation(), datetime.now(UTC) + timedelta(minutes=2)))

    run(database_url, scene)
    assert count(database_url, "select count(*) from operations") == 0


def test_a_creation_outlives_its_operation_in_every_answer(database_url: str) -> None:
    """The operation's record is retired, the allocation remains: queried, retried, retried when refused, reused."""
    fleet = Fleet(database_url, slice_nodes=1)
    tenant = fleet.tenant()
    create = create_of(tenant, gpus=8)
    effect = Effect()

    async def scene(context: Context, catalogue: CatalogueCache) -> list[Any]:
        (first,) = await create_all(context, catalogue, [create])
        fleet.connection.execute("delete from operations")
        told = await ask_operation(context, question(create.operation, datetime.now(UTC) - timedelta(days=2)))
        assert count(database_url, "select count(*) from operations") == 0, "asking has left no tombstone"
        (again,) = await create_all(context, catalogue, [create])
        fleet.connection.execute("update skus set allowed_counts = '{1}', row_version = row_version + 1")
        catalogue.forget()
        (refusable,) = await create_all(context, catalogue, [create])
        (other,) = await create_all(context, catalogue, [fresh_fingerprint(create)])
        with pytest.raises(OperationConflict):
            await run_once(context, fresh_fingerprint(create).operation, effect, tenant.id)
        replayed = await run_once(context, create.operation, effect, tenant.id)
        return [first, told, again, refusable, other, replayed]

    first, told, again, refusable, other, replayed = run(database_url, scene)
    assert (told.state, told.known.retire_after) == (OperationState.COMMITTED, None)
    assert json.loads(told.known.body) == json.loads(first.body)
    for answer in (again, refusable, replayed):
        assert isinstance(answer, Answer), answer
        assert (answer.status, answer.replayed) == (201, True)
        assert json.loads(answer.body) == json.loads(first.body)
    assert isinstance(other, OperationConflict)
    assert effect.runs == 0
    assert fleet.one("select count(*) from allocations") == 1
    assert fleet.one("select count(*) from operations where status is null") == 0


def test_refusals_are_kept_as_long_as_successes(database_url: str) -> None:
    tenant = uuid.uuid4()

    async def scene(context: Context, _: CatalogueCache) -> None:
        for key, effect in (("done", Effect()), ("refused", Effect(NotFound("no")))):
            await run_once(context, Operation(tenant, key, b"a" * 32, 5_000.0), effect, tenant)
        await ask_operation(context, Question(tenant, "fenced", tenant))

    run(database_url, scene, operation_retention_seconds=5_000.0)
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "select key, extract(epoch from retire_after - created_at)::float8 from operations order by key"
        ).fetchall()
    assert [key for key, _ in rows] == ["done", "fenced", "refused"]
    assert all(abs(kept - 5_000.0) < 5.0 for _, kept in rows), rows


def _held(watcher: psycopg.Connection[Any]) -> bool:
    """Whether a session has begun its effect, and so holds its key."""
    statement = (
        "select count(*) from pg_stat_activity where state = 'idle in transaction'"
        " and query = 'select 1' and application_name = 'test'"
    )
    row = watcher.execute(statement).fetchone()
    return row is not None and row[0] > 0
