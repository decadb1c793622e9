"""A tenant that queues thousands of requests delays another tenant's request by at most one batch."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import httpx
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.process.fair_queue import LIGHT_RATIO, FairQueue
from orchestrator.edge.batching import SHARED_BATCH_SHARE, Batcher
from orchestrator.operations.execution import Deferred, Result
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import ConcurrencyLimited, Overloaded
from tests.api.calling import Caller, enrol, insert_admin_key, new_node, new_place, new_tenant, one_gpu
from tests.api.processes import metric_of, public_process
from tests.support.waiting import WAIT_SECONDS_MAX, let_others_run, wait_for

FLOODING, QUIET = UUID(int=1), UUID(int=2)
BATCH_MAX = 32
FLOOD = 10_000


@dataclass(frozen=True)
class Wish:
    """A request that can be an item of a batch."""

    operation: Operation
    places: frozenset[str]


def wish(tenant: UUID, number: int, *places: str) -> Wish:
    """A tenant's request with a new key, which names these places."""
    return Wish(Operation(tenant, f"key-{number}", b"", 60.0), frozenset(places))


class Batches:
    """Batches that wait until they are let go, in the order in which they began."""

    def __init__(self, queue_max: int | None = None) -> None:
        self.batcher: Batcher[Wish] = Batcher(
            "wishes",
            self._carry,
            batch_max=BATCH_MAX,
            batches_in_flight_max=2,
            queue_max=queue_max,
            places_of=lambda one: one.places,
        )
        self.begun: list[Counter[UUID]] = []
        self._ends: list[asyncio.Event] = []
        self._numbers = itertools.count()

    async def _carry(self, wishes: list[Wish]) -> Sequence[Result | Deferred]:
        self.begun.append(Counter(one.operation.scope for one in wishes))
        self._ends.append(asyncio.Event())
        await self._ends[-1].wait()
        return [Answer(201, "{}")] * len(wishes)

    async def ask(self, tenant: UUID, count: int, *places: str) -> list[asyncio.Task[Answer]]:
        """Queue so many requests that each name these places."""
        asked = [
            asyncio.create_task(self.batcher.answer(wish(tenant, next(self._numbers), *places))) for _ in range(count)
        ]
        await settle()
        return asked

    async def let_go(self, number: int) -> None:
        """Let the batch of this number end."""
        self._ends[number].set()
        await settle()


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(5):
        await let_others_run()


def test_a_flood_delays_another_tenant_by_no_batch() -> None:
    async def scene() -> None:
        batches = Batches()
        await batches.ask(FLOODING, 1)
        await batches.ask(FLOODING, FLOOD)
        assert [sum(batch.values()) for batch in batches.begun] == [1, 1], "every slot is taken"
        (answer,) = await batches.ask(QUIET, 1)
        assert batches.begun[2:] == [Counter({QUIET: 1})], "one more batch beside the others"
        await batches.let_go(2)
        assert answer.done()

    asyncio.run(scene())


def test_the_next_batch_after_that_is_shared() -> None:
    async def scene() -> None:
        batches = Batches()
        await batches.ask(FLOODING, 1)
        await batches.ask(FLOODING, FLOOD)
        await batches.ask(QUIET, 1)
        await batches.ask(UUID(int=3), 1)
        assert len(batches.begun) == 3, "one batch of light tenants at a time"
        await batches.let_go(0)
        await batches.let_go(1)
        assert batches.begun[3] == Counter({FLOODING: BATCH_MAX // SHARED_BATCH_SHARE - 1, UUID(int=3): 1})
        assert len(batches.begun) == 4, "while a light tenant asks, the others have one batch at a time"

    asyncio.run(scene())


async def crowd(batches: Batches, place: str) -> None:
    """Both slots are taken, and 15 tenants of equal weight wait for one place."""
    for number in range(15):
        await batches.ask(UUID(int=10 + number), 4, place)
    assert len(batches.begun) == 2


def test_a_request_for_another_place_than_the_crowd_waits_for_no_batch() -> None:
    async def scene() -> None:
        batches = Batches()
        await crowd(batches, "contended")
        (answer,) = await batches.ask(QUIET, 1, "quiet")
        assert batches.begun[2:] == [Counter({QUIET: 1})], "one more batch beside the others"
        await batches.let_go(2)
        assert answer.done()
        await batches.let_go(0)
        assert len(batches.begun) == 3, "the others have one batch at a time meanwhile"
        await batches.let_go(1)
        assert sum(batches.begun[3].values()) == BATCH_MAX, "whose size is as before"

    asyncio.run(scene())


@pytest.mark.parametrize("places", [("contended",), ("quiet", "contended"), ()])
def test_a_request_for_the_place_of_a_crowd_waits_with_it(places: tuple[str, ...]) -> None:
    async def scene() -> None:
        batches = Batches()
        await crowd(batches, "contended")
        await batches.ask(QUIET, 1, *places)  # one of 61 requests of 16 tenants: no light tenant
        assert len(batches.begun) == 2

    asyncio.run(scene())


def test_a_tenant_with_more_than_others_gains_nothing_by_many_places() -> None:
    async def scene() -> None:
        batches = Batches()
        await crowd(batches, "contended")
        for number in range(20):
            await batches.ask(FLOODING, 1, f"place-{number}")
        assert batches.begun[2:] == [Counter({FLOODING: 1})]
        await batches.let_go(2)
        assert len(batches.begun) == 3, "it has more waiting than others: they wait for their turns"
        await batches.ask(QUIET, 1, "quiet")
        assert batches.begun[3:] == [Counter({QUIET: 1})]

    asyncio.run(scene())


def test_many_tenants_share_each_batch() -> None:
    async def scene() -> None:
        batches = Batches()
        tenants = [UUID(int=number) for number in range(10, 18)]
        await batches.ask(FLOODING, 400)
        for tenant in tenants:
            await batches.ask(tenant, 200)
        for number in range(3):
            await batches.let_go(number)
        assert sorted(batches.begun[3].values()) == [1] * (BATCH_MAX // SHARED_BATCH_SHARE)

    asyncio.run(scene())


def test_a_tenant_fills_its_share_of_the_queue_and_not_the_queue() -> None:
    async def scene() -> None:
        batches = Batches(queue_max=100)
        flood = await batches.ask(FLOODING, 1_000)
        refused = [one.exception() for one in flood if one.done()]
        assert len(refused) > 800
        assert all(isinstance(one, ConcurrencyLimited) for one in refused)
        (quiet,) = await batches.ask(QUIET, 1)
        await batches.let_go(len(batches.begun) - 1)
        assert quiet.result().status == 201
        tenants = [UUID(int=number) for number in range(10, 200)]
        others = [one for tenant in tenants for one in await batches.ask(tenant, 2)]
        assert any(isinstance(one.exception(), Overloaded) for one in others if one.done()), "the bound of all"

    asyncio.run(scene())


def test_a_batch_begins_where_the_one_before_it_ended() -> None:
    queue: FairQueue[tuple[UUID, int], UUID] = FairQueue(lambda item: item[0], lambda item: True)
    for number in range(6):
        queue.append((UUID(int=number % 3), number))
    assert [[number for _, number in queue.take(2)] for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=60),
    st.integers(1, 8),
    st.lists(st.integers(0, 5), max_size=10),
)
def test_round_robin_over_any_arrivals(first: list[int], count: int, second: list[int]) -> None:
    """Each item is taken once and in order; no tenant is taken from again before the others that waited with it."""
    queue: FairQueue[tuple[UUID, int], UUID] = FairQueue(lambda item: item[0], lambda item: True)
    arrived: list[tuple[UUID, int]] = []
    taken: list[tuple[UUID, int]] = []
    for tenants in (first, second):
        for tenant in tenants:
            arrived.append((UUID(int=tenant), len(arrived)))
            queue.append(arrived[-1])
        waiting = {item[0] for item in set(arrived) - set(taken)}
        batch = queue.take(count)
        assert len({item[0] for item in batch}) == min(count, len(waiting), len(batch))
        taken += batch
    while batch := queue.take(count):
        taken += batch
    assert len(queue) == 0
    assert sorted(taken) == sorted(arrived)
    for tenant in range(6):
        numbers = [number for owner, number in taken if owner == UUID(int=tenant)]
        assert numbers == sorted(numbers)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(["append", "take", "done", "put back"]), max_size=60), st.data())
def test_what_is_outstanding_is_what_was_queued_and_is_not_done(moves: list[str], data: st.DataObject) -> None:
    verdicts = st.sampled_from([True, False, None])
    queue: FairQueue[tuple[UUID, int], UUID] = FairQueue(lambda item: item[0], lambda item: data.draw(verdicts))
    away: list[tuple[UUID, int]] = []
    for number, move in enumerate(moves):
        if move == "append":
            queue.append((UUID(int=number % 3), number))
        elif move == "take":
            away += queue.take(4)
        elif move == "done" and away:
            queue.done(away.pop())
        elif move == "put back":
            queue.put_back(away)
            away.clear()
    assert queue.outstanding == len(queue) + len(away)


PLACES: tuple[set[int], ...] = (set(), {0}, {0}, {0}, {1}, {0, 1}, {2, 3})


@pytest.mark.parametrize("verdict", [None, False])
def test_what_is_behind_a_light_item_that_is_not_taken_is_judged_too(verdict: bool | None) -> None:
    """Its client has gone, or its key is in flight: the next item of the tenant is no light one for that."""
    gone = (99, frozenset({1}))
    queue: FairQueue[tuple[int, frozenset[int]], int] = FairQueue(
        lambda item: item[0], lambda item: verdict if item is gone else True, lambda item: item[1]
    )
    crowd = [(number // 2, frozenset({0})) for number in range(4 * LIGHT_RATIO)]
    behind = (99, frozenset({0}))
    for item in (*crowd, gone, behind):
        queue.append(item)
    assert queue.is_light(gone)
    assert not queue.is_light(behind)
    assert queue.take(10, light=True) == []
    assert behind in queue.take(100)


def test_a_crowd_that_is_served_is_none_any_more() -> None:
    queue: FairQueue[tuple[int, frozenset[int]], int] = FairQueue(lambda item: item[0], places_of=lambda item: item[1])
    crowd = [(number, frozenset({0})) for number in range(LIGHT_RATIO)]
    elsewhere = (LIGHT_RATIO, frozenset({1}))
    for item in (*crowd, elsewhere):
        queue.append(item)
    assert queue.is_light(elsewhere)
    queue.done(queue.take(1)[0])
    assert not queue.is_light(elsewhere)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.sampled_from((True, True, False)), st.sampled_from(PLACES)), max_size=60))
def test_an_item_is_light_beside_the_busiest_place_alone(moves: list[tuple[bool, set[int]]]) -> None:
    """It is judged by what is outstanding, whatever arrived and was done before."""
    queue: FairQueue[tuple[int, frozenset[int]], int] = FairQueue(lambda item: item[0], places_of=lambda item: item[1])
    outstanding: list[tuple[int, frozenset[int]]] = []
    for number, (arrives, places) in enumerate(moves):
        if arrives or not outstanding:
            outstanding.append((number, frozenset(places)))
            queue.append(outstanding[-1])
        else:
            queue.done(outstanding.pop(0))
            queue.take(1)
    at = Counter(place for _, places in outstanding for place in places)
    busiest = max(at.values(), default=0)
    for item in outstanding:
        light = bool(item[1]) and all(at[place] * LIGHT_RATIO <= busiest for place in item[1])
        few = LIGHT_RATIO * len(outstanding) <= len(outstanding)
        assert queue.is_light(item) == (light or few)


async def send_creates(port: int, bodies: Sequence[tuple[Caller, str]]) -> list[asyncio.Task[int]]:
    """Send creates, a connection each; tasks that return the status."""

    async def create(caller: Caller, body: str) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"POST /api/v1/allocations HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {caller.key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
        )
        status = int((await reader.readuntil(b"\r\n"))[9:12])
        await reader.read()
        writer.close()
        return status

    return [asyncio.create_task(create(caller, body)) for caller, body in bodies]


REQUESTS = 1_000
NODES = 16
BOUNDS = {
    "BERTH_LOCK_TIMEOUT_SECONDS": "60",
    "BERTH_TRANSACTION_TIMEOUT_SECONDS": "120",
    "BERTH_REQUESTS_IN_FLIGHT_MAX": "2000",
}


@pytest.mark.full
@pytest.mark.usefixtures("tmp_path")
def test_a_create_overtakes_a_thousand_of_another_tenant(database_url: str, tmp_path: Path) -> None:
    """While a lock stalls the database 1,000 creates of one tenant and one of another arrive; the one is served first."""
    with (
        public_process(database_url, tmp_path, BOUNDS) as http,
        psycopg.connect(database_url, autocommit=True) as database,
    ):
        admin = Caller(http, insert_admin_key(database_url))
        place = new_place(admin, database)
        for _ in range(NODES - 1):
            enrol(admin, new_node(admin, place.region)["id"])
        database.execute("update nodes set online = true")
        flooding, quiet = new_tenant(admin), new_tenant(admin)
        flood = [(flooding, json.dumps(one_gpu(flooding, place)))] * REQUESTS
        single = [(quiet, json.dumps(one_gpu(quiet, place)))]
        status = asyncio.run(_overtake(http, database_url, flood, single))
        stamps = [row[0] for row in database.execute("select distinct requested_at from allocations order by 1")]
        (own,) = database.execute(
            "select requested_at from allocations where tenant_id = %s", (quiet.tenant_id,)
        ).fetchall()
    assert status == 201, "all GPUs are gone before the thousand are served"
    # A request counts as in flight before it is queued, so a batch or two may begin before it; in order of arrival it is last.
    assert stamps.index(own[0]) <= len(stamps) // 4, "of the batches that waited for the lock, or soon after"


async def _overtake(
    http: httpx.Client, database_url: str, flood: Sequence[tuple[Caller, str]], single: Sequence[tuple[Caller, str]]
) -> int:
    """Send both while a lock stalls every create; the status of the single one."""
    port = http.base_url.port
    assert port is not None
    async with await psycopg.AsyncConnection.connect(database_url) as holding:
        await holding.execute("lock table operations in exclusive mode")
        flooding = await send_creates(port, flood)
        await _until_in_flight(http, len(flood))
        (one,) = await send_creates(port, single)
        await _until_in_flight(http, len(flood) + 1)
        await holding.rollback()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            status = await one
            await asyncio.gather(*flooding)
    return status


async def _until_in_flight(http: httpx.Client, number: int) -> None:
    def arrived() -> bool:
        return metric_of(http, 'berth_api_requests_in_flight{zone="public"}') >= number

    await asyncio.to_thread(wait_for, arrived, f"{number} requests in flight")
