"""`POST /allocations` with a reservation: one claim changes its owner, in one transaction, or nothing happens."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

import psycopg
import pytest

from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Invalid, Problem
from orchestrator.reservations.commands.expire import expire_reservation
from orchestrator.reservations.states import reservation_id
from tests.allocations.driving import allocation_of, claim_of, clean_up, provision, release, row_of, rows_of
from tests.allocations.seeding import METAL_SKU, SLICE_SKU, add_tenant, connect, create_allocation
from tests.reservations.holding import Desk, at_desk, deadlocks, seed_with_seats
from tests.reservations.turning_over.desk import code_of, consume, consumed, events_of, gpus, soon, violations
from tests.support.rival_sessions import until_waiting
from tests.support.waiting import wait_past


def test_a_claim_becomes_an_allocations_and_its_quota_with_it(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(desk: Desk) -> None:
        ends_at = soon(600)
        held = await desk.held(wanted=gpus(2, 2), ends_at=ends_at)
        before = row_of(database_url, "select * from tenant_quotas")["gpus_used"]
        claims = rows_of(database_url, "select id, fence from claims order by id")
        first = await consumed(desk, held)
        assert desk.state(held) == "hold", "one claim is left"
        assert violations(database_url) == []
        second = await consumed(desk, held)
        assert desk.state(held) == "consumed"
        assert row_of(database_url, "select * from tenant_quotas")["gpus_used"] == before == 4
        now = [(claim_of(database_url, one)["id"], claim_of(database_url, one)["fence"]) for one in (first, second)]
        assert [id_ for id_, _ in now] == [id_ for id_, _ in claims], "the same rows"
        assert all(fence > old for (_, fence), (_, old) in zip(now, claims, strict=True))
        for one in (first, second):
            row, claim = allocation_of(database_url, one), claim_of(database_url, one)
            assert (row["reservation_id"], row["ends_at"], row["waits_for"]) == (held, ends_at, "worker")
            assert claim["occupied"]
            assert events_of(database_url, f"allocations/{one}") == ["provisioning.requested"]
        assert events_of(database_url, f"reservations/{held}") == ["reservation.held", "reservation.consumed"]
        payload = row_of(database_url, "select payload from outbox where event_type = 'reservation.consumed'")[
            "payload"
        ]
        assert sorted(payload["allocation_ids"]) == sorted(map(str, (first, second)))
        await provision(desk.context, database_url, first)
        await release(desk.context, seeded, first)
        await clean_up(desk.context, database_url, first)
        assert row_of(database_url, "select * from tenant_quotas")["gpus_used"] == 2

    at_desk(database_url, seeded, way)
    assert violations(database_url) == []


def test_a_repetition_gets_the_first_answer_and_never_runs_twice(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(desk: Desk) -> None:
        held = await desk.held(wanted=gpus(3))
        answers = await asyncio.gather(*(consume(desk, held, key="same") for _ in range(4)))
        assert len({answer.body for answer in answers}) == 1
        with connect(database_url) as connection:
            connection.execute("delete from operations where key = 'same'")
        late = await consume(desk, held, key="same")
        assert (late.replayed, late.body) == (True, answers[0].body), "the same bytes, also without the record"
        assert json.loads(late.body)["reservation_id"] == str(held)

    at_desk(database_url, seeded, way)
    assert rows_of(database_url, "select count(*) from allocations") == [(1,)]
    assert violations(database_url) == []


def test_every_refusal_has_its_code_and_changes_nothing(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=2, slice_nodes=2)
    with connect(database_url) as connection:
        stranger = add_tenant(connection, "stranger")

    async def way(desk: Desk) -> None:
        later_at = soon(3_600)
        later = await desk.held(desk.slot(7), starts_at=later_at)
        seat = await desk.held("seat-0")
        pair = await desk.held(desk.slot(5), desk.slot(6))
        three = await desk.held(*(desk.slot(index, 1) for index in range(3)))
        cancelled = await desk.held("seat-1")
        held = await desk.held(wanted=gpus())
        await desk.cancel(cancelled)
        before = rows_of(database_url, "select * from claims order by id")
        assert code_of(await consume(desk, held, holder="another")) == "holder_mismatch"
        assert code_of(await consume(desk, held, tenant_id=stranger.tenant_id)) == "reservation_not_found"
        assert code_of(await consume(desk, reservation_id(0, 2**40))) == "reservation_not_found"
        assert code_of(await consume(desk, cancelled)) == "invalid_state"
        early = await consume(desk, later, sku=SLICE_SKU)
        assert code_of(early) == "invalid_state"
        assert datetime.fromisoformat(json.loads(early.body)["starts_at"]) == later_at
        assert code_of(await consume(desk, seat, sku=SLICE_SKU)) == "resource_not_allocatable"
        assert json.loads((await consume(desk, held, sku=METAL_SKU)).body)["reason"] == "not_reserved"
        assert json.loads((await consume(desk, pair, sku=METAL_SKU)).body)["reason"] == "count_not_allowed"
        assert json.loads((await consume(desk, three, sku=SLICE_SKU)).body)["reason"] == "count_not_allowed"
        assert code_of(await consume(desk, held, ssh_key_id=uuid4())) == "ssh_key_not_found"
        with pytest.raises(Invalid):
            await consume(desk, pair)
        with connect(database_url) as connection:
            connection.execute("update nodes set online = false")
        assert code_of(await consume(desk, pair, sku=SLICE_SKU)) == "resource_out_of_service"
        assert rows_of(database_url, "select * from claims order by id") == before
        assert rows_of(database_url, "select count(*) from allocations") == [(0,)]
        with connect(database_url) as connection:
            connection.execute("update nodes set online = true")
            connection.execute("update tenants set state = 'suspended'")
        with pytest.raises(Problem, match="suspended"):
            await consume(desk, held)

    at_desk(database_url, seeded, way)
    assert violations(database_url) == []


def test_named_slots_become_an_allocation_and_what_is_registered_stays_held(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=1)

    async def way(desk: Desk) -> None:
        held = await desk.held(desk.slot(2), desk.slot(3), "seat-0")
        made = await consumed(desk, held, sku=SLICE_SKU)
        assert allocation_of(database_url, made)["gpus"] == 2
        assert desk.state(held) == "hold"
        assert row_of(database_url, "select gpus_held from reservations")["gpus_held"] == 0
        assert code_of(await consume(desk, held, sku=SLICE_SKU)) == "resource_not_allocatable"
        await desk.cancel(held)
        assert row_of(database_url, "select gpus_used from tenant_quotas")["gpus_used"] == 2

    at_desk(database_url, seeded, way)


def test_what_is_over_ends_in_the_transaction_that_asks_for_it(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(desk: Desk) -> None:
        late = await desk.held(wanted=gpus())
        desk.set_deadline(late, -1)
        window = await desk.held(wanted=gpus(), ends_at=soon())
        await desk.confirm(window)
        assert code_of(await consume(desk, late)) == "invalid_state"
        assert desk.state(late) == "expired"
        await wait_past(row_of(database_url, "select ends_at from reservations where id = %s", window)["ends_at"])
        assert code_of(await consume(desk, window)) == "invalid_state"
        assert desk.state(window) == "released"
        assert row_of(database_url, "select gpus_used from tenant_quotas")["gpus_used"] == 0

    at_desk(database_url, seeded, way)
    assert violations(database_url) == []


# Long. tests/reservations/test_races.py has the deadline of a hold.
@pytest.mark.full
@pytest.mark.parametrize("rounds", [25, pytest.param(3000, marks=[pytest.mark.full, pytest.mark.timeout(3600)])])
def test_at_the_deadline_one_of_consume_cancel_expire_and_a_rival_wins(database_url: str, rounds: int) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2)
    with connect(database_url) as connection:
        rival = add_tenant(connection, "rival")
    ends: Counter[str] = Counter()
    chance = random.Random(23)
    lead_milliseconds = 10.0

    async def way(desk: Desk) -> None:
        nonlocal lead_milliseconds
        for turn in range(rounds):
            held = await desk.held(desk.slot(0))
            desk.set_deadline(held, lead_milliseconds * chance.uniform(0.6, 1.4))
            consumers = [consume(desk, held, sku=SLICE_SKU), consume(desk, held, sku=SLICE_SKU)]
            others = [_until_over(desk, held), desk.hold(desk.slot(0), tenant_id=rival.tenant_id)]
            if turn % 3 == 0:
                others.append(desk.cancel(held))
            won, answers = await asyncio.gather(asyncio.gather(*consumers), asyncio.gather(*others))
            end = _judge(desk, held, won, answers[1])
            ends[end] += 1
            # However busy the machine is: the deadline is kept where the race is open.
            lead_milliseconds *= 0.8 if end == "consumed" else 1.25
            if turn % 25 == 0:
                await _run_to_the_end(desk, held)
                assert violations(database_url) == []
            _clear(database_url)

    at_desk(database_url, seeded, way)
    assert ends["consumed"] > 0, ends
    assert ends["expired"] > 0, ends
    assert deadlocks(database_url) == 0


def test_a_turn_over_that_waited_is_judged_when_it_has_the_lock(database_url: str) -> None:
    """Its deadline passes while it waits for a lock: it is too late, whenever it was sent."""
    seeded = seed_with_seats(database_url)

    async def way(desk: Desk) -> None:
        held = await desk.held(desk.slot(0))
        async with await psycopg.AsyncConnection.connect(database_url) as holder:
            await holder.execute("select from reservations for update")
            waiting = asyncio.create_task(consume(desk, held, sku=SLICE_SKU))
            await until_waiting(database_url)
            await holder.execute(
                "update reservations set expires_at = clock_timestamp(), hold_until = clock_timestamp()"
            )
            await holder.commit()
            assert (await waiting).status == 409
        assert desk.state(held) == "expired"

    at_desk(database_url, seeded, way)
    assert violations(database_url) == []


async def _until_over(desk: Desk, held: UUID) -> None:
    while desk.state(held) == "hold":
        await expire_reservation(desk.context, held)


def _judge(desk: Desk, held: UUID, consumers: Sequence[Answer], rivals: Answer | None) -> str:
    """The final holder; no two requests were answered that they hold the same unit."""
    state = desk.state(held)
    won = [answer for answer in consumers if answer.status == 201]
    assert len(won) == (1 if state == "consumed" else 0)
    assert not (won and rivals is not None and rivals.status == 201)
    if won:
        row = row_of(desk.url, "select * from allocations where reservation_id = %s", held)
        assert str(row["id"]) == json.loads(won[0].body)["allocation_id"]
        judged = row_of(desk.url, "select * from reservations where id = %s", held)
        assert row["requested_at"] < judged["hold_until"]
    assert violations(desk.url) == []
    return state


async def _run_to_the_end(desk: Desk, held: UUID) -> None:
    """What the reservation has become runs and is released like any other."""
    for (made,) in rows_of(desk.url, "select id from allocations where reservation_id = %s", held):
        await provision(desk.context, desk.url, made)
        await release(desk.context, desk.seeded, made)
        await clean_up(desk.context, desk.url, made)


def _clear(url: str) -> None:
    """Everything is free again, as if it had never been: for the next round."""
    with connect(url) as connection:
        for table in (
            "claims",
            "reservations",
            "outbox",
            "allocation_timeline",
            "node_tasks",
            "allocations",
            "operations",
        ):
            connection.execute(f"delete from {table}".encode())
        connection.execute("update tenant_quotas set gpus_used = 0")
        connection.execute("select refresh_node_fit(id) from nodes")


def test_two_consumers_of_one_claim_make_one_allocation(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(desk: Desk) -> None:
        held = await desk.held(wanted=gpus(3))
        answers = await asyncio.gather(*(consume(desk, held) for _ in range(6)))
        assert sorted(answer.status for answer in answers) == [201] * 3 + [409] * 3
        assert desk.state(held) == "consumed"

    at_desk(database_url, seeded, way)
    assert rows_of(database_url, "select count(distinct claim_id), count(*) from allocations") == [(3, 3)]
    assert deadlocks(database_url) == 0
    assert violations(database_url) == []


def test_an_ordinary_create_never_takes_what_is_reserved(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(desk: Desk) -> None:
        held = await desk.held(wanted=gpus(1, 8))
        with pytest.raises(AssertionError, match="no_room"):
            create_allocation(database_url, seeded)
        await consumed(desk, held)
        with pytest.raises(AssertionError, match="no_room"):
            create_allocation(database_url, seeded)

    at_desk(database_url, seeded, way)
