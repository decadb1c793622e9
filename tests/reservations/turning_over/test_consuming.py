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
from tests.reservations.holding import ReservationClient, as_client, deadlocks, seed_with_seats
from tests.reservations.turning_over.consuming import code_of, consume, consumed, events_of, gpus, soon, violations
from tests.support.rival_sessions import until_waiting
from tests.support.waiting import wait_past


def test_a_claim_becomes_an_allocations_and_its_quota_with_it(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        ends_at = soon(600)
        held = await client.held(wanted=gpus(2, 2), ends_at=ends_at)
        before = row_of(database_url, "select * from tenant_quotas")["gpus_used"]
        claims = rows_of(database_url, "select id, fence from claims order by id")
        first = await consumed(client, held)
        assert client.state(held) == "hold", "one claim is left"
        assert violations(database_url) == []
        second = await consumed(client, held)
        assert client.state(held) == "consumed"
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
        await provision(client.context, database_url, first)
        await release(client.context, seeded, first)
        await clean_up(client.context, database_url, first)
        assert row_of(database_url, "select * from tenant_quotas")["gpus_used"] == 2

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_an_ssh_key_that_is_deleted_while_its_claim_is_turned_over_is_still_the_allocations(database_url: str) -> None:
    """The key was found; the turn-over waits for the claim, which another session has locked, while the key is deleted."""
    seeded = seed_with_seats(database_url)

    async def scene(client: ReservationClient) -> UUID:
        held = await client.held(wanted=gpus())
        with psycopg.connect(database_url) as rival:
            rival.execute("select from claims where owner_id = %s for update", (held,))
            consuming = asyncio.create_task(consumed(client, held))
            await until_waiting(database_url)
            with connect(database_url) as connection:
                connection.execute("delete from ssh_keys where id = %s", (seeded.ssh_key_id,))
            rival.rollback()
        return await consuming

    ((public_key,),) = rows_of(database_url, "select public_key from ssh_keys")
    made = as_client(database_url, seeded, scene)
    assert allocation_of(database_url, made)["ssh_public_keys"] == [public_key]


def test_a_repetition_gets_the_first_answer_and_never_runs_twice(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        held = await client.held(wanted=gpus(3))
        answers = await asyncio.gather(*(consume(client, held, key="same") for _ in range(4)))
        assert len({answer.body for answer in answers}) == 1
        with connect(database_url) as connection:
            connection.execute("delete from operations where key = 'same'")
        late = await consume(client, held, key="same")
        assert (late.replayed, late.body) == (True, answers[0].body), "the same bytes, also without the record"
        assert json.loads(late.body)["reservation_id"] == str(held)

    as_client(database_url, seeded, way)
    assert rows_of(database_url, "select count(*) from allocations") == [(1,)]
    assert violations(database_url) == []


def test_every_refusal_has_its_code_and_changes_nothing(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=2, slice_nodes=2)
    with connect(database_url) as connection:
        stranger = add_tenant(connection, "stranger")

    async def way(client: ReservationClient) -> None:
        later_at = soon(3_600)
        later = await client.held(client.slot(7), starts_at=later_at)
        seat = await client.held("seat-0")
        pair = await client.held(client.slot(5), client.slot(6))
        three = await client.held(*(client.slot(index, 1) for index in range(3)))
        cancelled = await client.held("seat-1")
        held = await client.held(wanted=gpus())
        await client.cancel(cancelled)
        before = rows_of(database_url, "select * from claims order by id")
        assert code_of(await consume(client, held, holder="another")) == "holder_mismatch"
        assert code_of(await consume(client, held, tenant_id=stranger.tenant_id)) == "reservation_not_found"
        assert code_of(await consume(client, reservation_id(0, 2**40))) == "reservation_not_found"
        assert code_of(await consume(client, cancelled)) == "invalid_state"
        early = await consume(client, later, sku=SLICE_SKU)
        assert code_of(early) == "invalid_state"
        assert datetime.fromisoformat(json.loads(early.body)["starts_at"]) == later_at
        assert code_of(await consume(client, seat, sku=SLICE_SKU)) == "resource_not_allocatable"
        assert json.loads((await consume(client, held, sku=METAL_SKU)).body)["reason"] == "not_reserved"
        assert json.loads((await consume(client, pair, sku=METAL_SKU)).body)["reason"] == "count_not_allowed"
        assert json.loads((await consume(client, three, sku=SLICE_SKU)).body)["reason"] == "count_not_allowed"
        assert code_of(await consume(client, held, ssh_key_id=uuid4())) == "ssh_key_not_found"
        with pytest.raises(Invalid):
            await consume(client, pair)
        with connect(database_url) as connection:
            connection.execute("update nodes set online = false")
        assert code_of(await consume(client, pair, sku=SLICE_SKU)) == "resource_out_of_service"
        assert rows_of(database_url, "select * from claims order by id") == before
        assert rows_of(database_url, "select count(*) from allocations") == [(0,)]
        with connect(database_url) as connection:
            connection.execute("update nodes set online = true")
            connection.execute("update tenants set state = 'suspended'")
        with pytest.raises(Problem, match="suspended"):
            await consume(client, held)

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_named_slots_become_an_allocation_and_what_is_registered_stays_held(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=1)

    async def way(client: ReservationClient) -> None:
        held = await client.held(client.slot(2), client.slot(3), "seat-0")
        made = await consumed(client, held, sku=SLICE_SKU)
        assert allocation_of(database_url, made)["gpus"] == 2
        assert client.state(held) == "hold"
        assert row_of(database_url, "select gpus_held from reservations")["gpus_held"] == 0
        assert code_of(await consume(client, held, sku=SLICE_SKU)) == "resource_not_allocatable"
        await client.cancel(held)
        assert row_of(database_url, "select gpus_used from tenant_quotas")["gpus_used"] == 2

    as_client(database_url, seeded, way)


def test_what_is_over_ends_in_the_transaction_that_asks_for_it(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        late = await client.held(wanted=gpus())
        client.set_deadline(late, -1)
        window = await client.held(wanted=gpus(), ends_at=soon())
        await client.confirm(window)
        assert code_of(await consume(client, late)) == "invalid_state"
        assert client.state(late) == "expired"
        await wait_past(row_of(database_url, "select ends_at from reservations where id = %s", window)["ends_at"])
        assert code_of(await consume(client, window)) == "invalid_state"
        assert client.state(window) == "released"
        assert row_of(database_url, "select gpus_used from tenant_quotas")["gpus_used"] == 0

    as_client(database_url, seeded, way)
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

    async def way(client: ReservationClient) -> None:
        nonlocal lead_milliseconds
        for turn in range(rounds):
            held = await client.held(client.slot(0))
            client.set_deadline(held, lead_milliseconds * chance.uniform(0.6, 1.4))
            consumers = [consume(client, held, sku=SLICE_SKU), consume(client, held, sku=SLICE_SKU)]
            others = [_until_over(client, held), client.hold(client.slot(0), tenant_id=rival.tenant_id)]
            if turn % 3 == 0:
                others.append(client.cancel(held))
            won, answers = await asyncio.gather(asyncio.gather(*consumers), asyncio.gather(*others))
            end = _judge(client, held, won, answers[1])
            ends[end] += 1
            # However busy the machine is: the deadline is kept where the race is open.
            lead_milliseconds *= 0.8 if end == "consumed" else 1.25
            if turn % 25 == 0:
                await _run_to_the_end(client, held)
                assert violations(database_url) == []
            _clear(database_url)

    as_client(database_url, seeded, way)
    assert ends["consumed"] > 0, ends
    assert ends["expired"] > 0, ends
    assert deadlocks(database_url) == 0


def test_a_turn_over_that_waited_is_judged_when_it_has_the_lock(database_url: str) -> None:
    """Its deadline passes while it waits for a lock: it is too late, whenever it was sent."""
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        held = await client.held(client.slot(0))
        async with await psycopg.AsyncConnection.connect(database_url) as holder:
            await holder.execute("select from reservations for update")
            waiting = asyncio.create_task(consume(client, held, sku=SLICE_SKU))
            await until_waiting(database_url)
            await holder.execute(
                "update reservations set expires_at = clock_timestamp(), hold_until = clock_timestamp()"
            )
            await holder.commit()
            assert (await waiting).status == 409
        assert client.state(held) == "expired"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


async def _until_over(client: ReservationClient, held: UUID) -> None:
    while client.state(held) == "hold":
        await expire_reservation(client.context, held)


def _judge(client: ReservationClient, held: UUID, consumers: Sequence[Answer], rivals: Answer | None) -> str:
    """The final holder; no two requests were answered that they hold the same unit."""
    state = client.state(held)
    won = [answer for answer in consumers if answer.status == 201]
    assert len(won) == (1 if state == "consumed" else 0)
    assert not (won and rivals is not None and rivals.status == 201)
    if won:
        row = row_of(client.url, "select * from allocations where reservation_id = %s", held)
        assert str(row["id"]) == json.loads(won[0].body)["allocation_id"]
        judged = row_of(client.url, "select * from reservations where id = %s", held)
        assert row["requested_at"] < judged["hold_until"]
    assert violations(client.url) == []
    return state


async def _run_to_the_end(client: ReservationClient, held: UUID) -> None:
    """What the reservation has become runs and is released like any other."""
    for (made,) in rows_of(client.url, "select id from allocations where reservation_id = %s", held):
        await provision(client.context, client.url, made)
        await release(client.context, client.seeded, made)
        await clean_up(client.context, client.url, made)


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

    async def way(client: ReservationClient) -> None:
        held = await client.held(wanted=gpus(3))
        answers = await asyncio.gather(*(consume(client, held) for _ in range(6)))
        assert sorted(answer.status for answer in answers) == [201] * 3 + [409] * 3
        assert client.state(held) == "consumed"

    as_client(database_url, seeded, way)
    assert rows_of(database_url, "select count(distinct claim_id), count(*) from allocations") == [(3, 3)]
    assert deadlocks(database_url) == 0
    assert violations(database_url) == []


def test_an_ordinary_create_never_takes_what_is_reserved(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        held = await client.held(wanted=gpus(1, 8))
        with pytest.raises(AssertionError, match="no_room"):
            create_allocation(database_url, seeded)
        await consumed(client, held)
        with pytest.raises(AssertionError, match="no_room"):
            create_allocation(database_url, seeded)

    as_client(database_url, seeded, way)
