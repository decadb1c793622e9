"""Holds and creates that waited for a lock evaluate deadlines by the clock after it (P5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import psycopg
import pytest

from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Problem
from tests.allocations.driving import rows_of
from tests.at_length import at_length
from tests.placement.fleet import create_all
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats, violations, wanted_gpus
from tests.support.rival_sessions import until_waiting
from tests.support.waiting import WAIT_SECONDS_MAX, read_until
from tests.support.window_creates import create, status_of

T = TypeVar("T")
Hold = Callable[[ReservationClient, datetime | None], Awaitable[Answer]]


async def after_a_lock(
    client: ReservationClient, lock: str, work: Awaitable[T], until: datetime | None = None
) -> tuple[T, datetime]:
    """The outcome of work that had to wait for `lock`, held past `until`; and the database's clock just before its release."""
    async with await psycopg.AsyncConnection.connect(client.url) as rival:
        await rival.execute(lock.encode())
        waiting = asyncio.ensure_future(work)
        await until_waiting(client.url)

        async def clock() -> datetime:
            row = await (await rival.execute("select clock_timestamp()")).fetchone()
            assert row is not None
            now: datetime = row[0]
            return now

        released = await read_until(clock, lambda now: until is None or now > until, WAIT_SECONDS_MAX)
        await rival.rollback()
        return await waiting, released


NODES = "select from nodes order by id for update"
SEATS = "select from resources order by id for update"
QUOTAS = "select from tenant_quotas order by tenant_id for update"
KEY_TTL_SECONDS = 100


async def hold_slot(client: ReservationClient, ends_at: datetime | None) -> Answer:
    """By the slot's name."""
    return await client.hold(client.slot(0), ends_at=ends_at, ttl_seconds=KEY_TTL_SECONDS)


async def hold_seat(client: ReservationClient, ends_at: datetime | None) -> Answer:
    """A registered resource."""
    return await client.hold("seat-0", ends_at=ends_at, ttl_seconds=KEY_TTL_SECONDS)


async def hold_gpus(client: ReservationClient, ends_at: datetime | None) -> Answer:
    """GPUs that the placement chooses."""
    return await client.hold(wanted=wanted_gpus(2), ends_at=ends_at, ttl_seconds=KEY_TTL_SECONDS)


async def hold_in_window(client: ReservationClient, ends_at: datetime | None) -> Answer:
    """GPUs chosen in a window, on nodes that are reserved later."""
    return await client.hold(wanted=wanted_gpus(2), ends_at=ends_at, ttl_seconds=KEY_TTL_SECONDS)


HOLDS = pytest.mark.parametrize(
    ("hold", "lock"),
    [
        pytest.param(hold_slot, NODES, marks=pytest.mark.full),
        (hold_seat, SEATS),
        pytest.param(hold_gpus, NODES, marks=pytest.mark.full),
        (hold_in_window, NODES),
    ],
    ids=["slot", "registered resource", "chosen GPUs", "chosen GPUs in a window"],
)


@HOLDS
def test_a_hold_that_waited_lasts_from_the_end_of_the_wait(database_url: str, hold: Hold, lock: str) -> None:
    seeded = seed_with_seats(database_url, seats=1)

    async def way(client: ReservationClient) -> None:
        ends_at = await reserve_later(client) if hold is hold_in_window else None
        answer, released = await after_a_lock(client, lock, hold(client, ends_at))
        assert answer.status == 201, answer.body
        body = json.loads(answer.body)
        held_at, expires_at = (datetime.fromisoformat(body[name]) for name in ("held_at", "expires_at"))
        assert held_at >= released
        assert expires_at - held_at == timedelta(seconds=KEY_TTL_SECONDS)
        began = rows_of(client.url, "select lower(during) from claims where owner_id = %s", body["reservation_id"])
        assert began == [(held_at,)]

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


@HOLDS
def test_a_window_that_ends_during_the_wait_is_not_held(database_url: str, hold: Hold, lock: str) -> None:
    seeded = seed_with_seats(database_url, seats=1)

    async def way(client: ReservationClient) -> None:
        earlier = 0
        if hold is hold_in_window:
            await reserve_later(client)
            earlier = 1
        ends_at = datetime.now(UTC) + timedelta(seconds=2.5)
        outcome, _ = await after_a_lock(client, lock, outcome_of(hold(client, ends_at)), ends_at)
        assert outcome not in (200, 201), outcome
        assert rows_of(client.url, "select count(*) from reservations") == [(earlier,)]
        assert rows_of(client.url, "select count(*) from claims") == [(earlier,)]

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


async def reserve_later(client: ReservationClient) -> datetime:
    """Hold all GPUs from a moment on that is returned, so that only windows before it are free."""
    begins = datetime.now(UTC) + timedelta(hours=12)
    await client.held(wanted=wanted_gpus(8), starts_at=begins)
    return begins


async def outcome_of(work: Awaitable[Answer]) -> Any:
    """Its status, or the code of a refusal that is not stored."""
    try:
        return (await work).status
    except Problem as problem:
        return problem.code


def test_a_create_that_waited_begins_after_the_wait(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        create_it = create_all(client.context, client.catalogue, [create(client, None)])
        (result,), released = await after_a_lock(client, NODES, create_it)
        assert status_of(result) == 201
        ((requested_at, begins, occupied_from),) = rows_of(
            client.url,
            "select a.requested_at, lower(c.during), c.occupied_from from allocations a join claims c on c.id = a.claim_id",
        )
        assert requested_at >= released
        assert begins == occupied_from == requested_at

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


@pytest.mark.parametrize("lock", at_length([NODES, QUOTAS], [NODES]), ids=["nodes", "quotas"])
@pytest.mark.parametrize("held_later", [False, True], ids=["free for ever", "free in the window only"])
def test_a_create_whose_end_passes_during_the_wait_is_not_placed(
    database_url: str, held_later: bool, lock: str
) -> None:
    """Placed by the node's fit, or in a window before a reservation."""
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        if held_later:
            await client.held(wanted=wanted_gpus(8), starts_at=datetime.now(UTC) + timedelta(days=1))
        ends_at = datetime.now(UTC) + timedelta(seconds=2.5)
        (result,), _ = await after_a_lock(
            client, lock, create_all(client.context, client.catalogue, [create(client, ends_at)]), ends_at
        )
        assert status_of(result) != 201
        assert rows_of(client.url, "select from allocations") == []
        assert rows_of(client.url, "select from claims where owner_kind = 'allocation'") == []

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_overdue_holds_in_the_way_expire_by_the_clock_after_the_wait(database_url: str) -> None:
    """A create and a hold that each end another tenant's overdue hold, after they waited for its node."""
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        for rival in (hold_slot(client, None), _create_one(client)):
            overdue = await client.held(wanted=wanted_gpus(8))
            client.set_deadline(overdue, -5)
            status, released = await after_a_lock(client, NODES, _status(rival))
            assert status == 201
            assert client.state(overdue) == "expired"
            ((ended_at, judged_at),) = rows_of(
                client.url,
                "select r.ended_at, (e.payload ->> 'judged_at')::timestamptz from reservations r join outbox e"
                " on e.event_id = r.ended_event where r.id = %s",
                overdue,
            )
            assert ended_at == judged_at >= released
            for (held,) in rows_of(client.url, "select id from reservations where state = 'hold'"):
                assert (await client.cancel(held)).status == 200

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


async def _create_one(client: ReservationClient) -> Any:
    (result,) = await create_all(client.context, client.catalogue, [create(client, None)])
    return result


async def _status(work: Awaitable[Any]) -> Any:
    return status_of(await work)
