"""What availability promises is what holds get, one at a time and all at once; creates that end beside them (P1)."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.placement.queries import AskedAvailability, WindowAvailability, find_availability
from tests.allocations.driving import rows_of
from tests.allocations.seeding import REGION, SLICE_SKU, connect
from tests.placement.fleet import create_all
from tests.reservations.holding import ReservationClient, as_client, deadlocks, seed_with_seats, violations, wanted_gpus
from tests.support.rival_sessions import until_waiting
from tests.support.window_creates import create, status_of

DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
START = datetime.now(UTC).replace(microsecond=0) + DAY
YEARS_SECONDS = 5 * 365 * 86_400.0
Window = tuple[datetime, datetime | None]


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Some days of a fortnight, or from one of them on."""
    first = draw(st.integers(0, 12))
    length = draw(st.one_of(st.none(), st.integers(1, 6)))
    return START + first * DAY, None if length is None else START + (first + length) * DAY


async def look(client: ReservationClient, window: Window, gpus: int, count: int = 1) -> WindowAvailability:
    """The one offer there is, in that window."""
    asked = AskedAvailability(SLICE_SKU, REGION, gpus, count, *window)
    (found,) = await find_availability(
        client.context.database, client.catalogue, asked, window_seconds_max=YEARS_SECONDS, after=("", ""), limit=2
    )
    return found


async def try_hold(client: ReservationClient, window: Window, gpus: int, count: int = 1) -> int:
    """The status of a hold."""
    answer = await client.hold(wanted=wanted_gpus(gpus, count), starts_at=window[0], ends_at=window[1])
    return answer.status


def forget_all(url: str) -> None:
    """An empty fleet again."""
    with connect(url) as connection:
        connection.execute(
            "truncate claims, reservations, operations, outbox, allocations, allocation_timeline cascade"
        )
        connection.execute("select refresh_node_fit(id) from nodes")
        connection.execute("update tenant_quotas set gpus_used = 0")


@pytest.mark.parametrize("examples", [5, pytest.param(25, marks=pytest.mark.full)])
def test_as_many_as_are_available_can_be_held_and_not_one_more(database_url: str, examples: int) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2)
    gpus_of = st.sampled_from([1, 2, 4, 8])

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(windows(), gpus_of), max_size=6), windows(), gpus_of, st.integers(1, 3))
    def story(before: list[tuple[Window, int]], window: Window, gpus: int, count: int) -> None:
        forget_all(database_url)

        async def way(client: ReservationClient) -> None:
            for held, wanted in before:
                await try_hold(client, held, wanted)
            found = await look(client, window, gpus, count)
            await judge_earliest(client, window, gpus, count, found)
            if found.available:
                assert await try_hold(client, window, gpus, found.available) == 201
            assert await try_hold(client, window, gpus) == 409
            assert (await look(client, window, gpus)).available == 0

        as_client(database_url, seeded, way)
        assert violations(database_url) == []

    story()


async def judge_earliest(
    client: ReservationClient, window: Window, gpus: int, count: int, found: WindowAvailability
) -> None:
    """A hold at the earliest time succeeds (and is given back); one that begins a moment before does not."""
    length = None if window[1] is None else window[1] - window[0]

    def at(moment: datetime) -> Window:
        return moment, None if length is None else moment + length

    if found.earliest_at is None:
        assert await try_hold(client, at(START + 40 * DAY), gpus, count) == 409
        return
    if found.earliest_at > window[0]:
        assert await try_hold(client, at(found.earliest_at - MICROSECOND), gpus, count) == 409
    answer = await client.hold(
        wanted=wanted_gpus(gpus, count), starts_at=found.earliest_at, ends_at=at(found.earliest_at)[1]
    )
    assert answer.status == 201
    await client.cancel(uuid.UUID(json.loads(answer.body)["reservation_id"]))


@pytest.mark.full
def test_of_simultaneous_holds_for_overlapping_windows_as_many_win_as_fit(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2)

    async def way(client: ReservationClient) -> None:
        # Nothing is free for ever, so every one of these must check claims.
        assert await try_hold(client, (START + 20 * DAY, None), 8, 2) == 201
        for round_ in range(4):
            begins = START + 2 * round_ * DAY
            overlapping = [(begins + n * timedelta(hours=1), begins + DAY) for n in range(20)]
            statuses = Counter(await asyncio.gather(*(try_hold(client, window, 1) for window in overlapping)))
            assert statuses == {201: 16, 409: 4}
            assert await try_hold(client, (begins + DAY, begins + 2 * DAY), 8, 2) == 201, "back to back"

    as_client(database_url, seeded, way, pool_size=16)
    assert violations(database_url) == []
    assert deadlocks(database_url) == 0


def test_a_create_whose_node_leaves_service_while_it_waits_for_its_lock_goes_to_another(database_url: str) -> None:
    """When the create has searched, the first node alone is online; the rival's commit exchanges both."""
    seeded = seed_with_seats(database_url, slice_nodes=2)
    exchange = "update nodes set online = not online"

    async def scene(client: ReservationClient) -> None:
        assert await try_hold(client, (START + 5 * DAY, None), 8, 2) == 201
        with psycopg.connect(database_url) as rival:
            rival.execute("update nodes set online = false where id = %s", (seeded.nodes[1].id,))
            rival.commit()
            rival.execute(exchange)
            creating = asyncio.create_task(create_all(client.context, client.catalogue, [create(client, START + DAY)]))
            await until_waiting(database_url)
            rival.commit()
        (created,) = await creating
        assert status_of(created) == 201

    as_client(database_url, seeded, scene)
    assert rows_of(database_url, "select node_id from allocations") == [(seeded.nodes[1].id,)]


def test_creates_that_end_and_holds_share_a_node_without_overlap(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2)

    async def way(client: ReservationClient) -> None:
        assert await try_hold(client, (START + 5 * DAY, None), 8, 2) == 201
        creates = [create_all(client.context, client.catalogue, [create(client, START + DAY)]) for _ in range(10)]
        holds = [try_hold(client, (START, START + 2 * DAY), 1) for _ in range(10)]
        found = await asyncio.gather(*creates, *holds)
        created = Counter(status_of(one[0]) for one in found if isinstance(one, list))
        held = Counter(one for one in found if isinstance(one, int))
        assert created[201] + held[201] == 16
        assert created[409] + held[409] == 4
        (endless,) = await create_all(client.context, client.catalogue, [create(client, None)])
        assert status_of(endless) == 409

    as_client(database_url, seeded, way, pool_size=16)
    assert violations(database_url) == []
    assert deadlocks(database_url) == 0


def test_a_create_ends_the_overdue_holds_in_its_way_in_its_own_transaction(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=1, seats=1)

    async def way(client: ReservationClient) -> None:
        bundle = await client.held(client.slot(0), "seat-0")
        rest = await client.held(wanted=wanted_gpus(1, 7))
        for one in (bundle, rest):
            client.set_deadline(one, -1)
        results = await create_all(client.context, client.catalogue, [create(client, None) for _ in range(8)])
        assert [status_of(result) for result in results] == [201] * 8
        assert [client.state(one) for one in (bundle, rest)] == ["expired", "expired"]

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_a_hold_that_is_not_overdue_yet_keeps_every_other_out(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=1)

    async def way(client: ReservationClient) -> None:
        held = await client.held(wanted=wanted_gpus(8))
        results = await create_all(
            client.context,
            client.catalogue,
            [create(client, None), create(client, START), create(client, START - DAY / 2)],
        )
        assert [status_of(result) for result in results] == [409, 409, 409]
        assert client.state(held) == "hold"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_each_claim_of_a_hold_in_a_window_is_a_claim_of_its_own(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=1)

    async def way(client: ReservationClient) -> None:
        assert await try_hold(client, (START + 5 * DAY, None), 8) == 201
        assert await try_hold(client, (START, START + DAY), 2, 4) == 201

    as_client(database_url, seeded, way)
    with connect(database_url) as connection:
        sizes = connection.execute(
            "select upper(units) - lower(units) from claims where not upper_inf(during) order by id"
        ).fetchall()
    assert sizes == [(2,), (2,), (2,), (2,)], "each becomes an allocation of two GPUs"
    assert violations(database_url) == []
