"""Another end and other owners of the units: a competing window refuses it, and of two at once exactly one wins (P1, P5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from orchestrator.operations.execution import Limits
from orchestrator.reservations.commands.expire import expire_reservation
from orchestrator.reservations.store.confirming import Confirm
from tests.allocations.driving import allocation_of, claim_of, clean_up, provision, release, row_of, rows_of
from tests.allocations.ending import at, broken, claims_of, ends, outcome, refusal, set_end, slot_of, traces
from tests.allocations.seeding import add_tenant, connect, create_allocation
from tests.reservations.holding import HOLDER, ReservationClient, as_client, confirm_alone, deadlocks, seed_with_seats
from tests.reservations.turning_over.consuming import back_to_back, events_of, soon, violations
from tests.support.rival_sessions import until_waiting
from tests.support.waiting import wait_past

ROUNDS = 6
LONGEST_WAIT = timedelta(seconds=Limits().units_seconds_max)


async def renting(client: ReservationClient, end: datetime | None) -> UUID:
    """An active allocation of one GPU."""
    made = create_allocation(client.url, client.seeded, ends_at=end)
    await provision(client.context, client.url, made)
    return made


@pytest.mark.parametrize("confirmed", [False, True])
@pytest.mark.parametrize("own", [True, False])
def test_a_window_in_the_way_refuses_and_nothing_changes(database_url: str, confirmed: bool, own: bool) -> None:
    seeded = seed_with_seats(database_url)
    with connect(database_url) as connection:
        other = add_tenant(connection, "other").tenant_id

    async def way(client: ReservationClient) -> None:
        end, begins, over = at(600), at(900), at(1_200)
        made = await renting(client, end)
        tenant = None if own else other
        rival = await client.held(slot_of(client, made), starts_at=begins, ends_at=over, tenant_id=tenant)
        if confirmed:
            owner = tenant or seeded.tenant_id
            await confirm_alone(client.context, Confirm(client.operation(owner, ending=True), owner, rival, HOLDER))
        before = traces(database_url)
        for wanted in (at(901), over, at(7_200), None):
            refused = await set_end(client, made, wanted, name="new")
            assert refusal(refused) == (409, "resource_busy")
            assert json.loads(refused.body)["conflicts"] == ([f"reservations/{rival}"] if own else [])
        assert traces(database_url) == before
        await ends(client, made, begins)
        assert claim_of(database_url, made)["during"].upper == begins, "back to back is no overlap"
        await ends(client, made, at(300))
        assert (await client.hold(slot_of(client, made), starts_at=at(310), ends_at=begins)).status == 201, "given back"

    as_client(database_url, seeded, way)


def test_other_slots_and_nodes_are_no_rivals(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2)

    async def way(client: ReservationClient) -> None:
        made = await renting(client, at(600))
        mine = claim_of(database_url, made)
        node = [one.id for one in seeded.nodes].index(mine["node_id"])
        others = [client.slot(index, node) for index in range(8)]
        ((index,),) = rows_of(
            database_url, "select lower(units) - unit_base from claims c join nodes n on n.id = c.node_id where c.id = %s",
            mine["id"],
        )  # fmt: skip
        await client.held(*[name for place, name in enumerate(others) if place != index], starts_at=at(900))
        await client.held(client.node(1 - node), starts_at=at(900))
        await ends(client, made, None)

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}


def test_an_overdue_hold_in_the_way_expires_in_the_same_transaction(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2, seats=1)
    with connect(database_url) as connection:
        other = add_tenant(connection, "other").tenant_id

    async def way(client: ReservationClient) -> None:
        made = await renting(client, at(600))
        node = [one.id for one in seeded.nodes].index(claim_of(database_url, made)["node_id"])
        names = (client.slot(_index(client, made), node), client.slot(3, 1 - node), "seat-0")
        held = await client.held(*names, starts_at=at(900), tenant_id=other, ttl_seconds=5)
        assert refusal(await set_end(client, made, None)) == (409, "resource_busy")
        used = "select gpus_used from tenant_quotas where tenant_id = %s"
        assert row_of(database_url, used, other)["gpus_used"] == 2
        await wait_past(row_of(database_url, "select hold_until from reservations where id = %s", held)["hold_until"])
        await ends(client, made, None)
        assert client.state(held) == "expired"
        assert events_of(database_url, f"reservations/{held}") == ["reservation.held", "reservation.expired"]
        assert all(claim["closed_at"] is not None for claim in claims_of(database_url, held))
        assert row_of(database_url, used, other)["gpus_used"] == 0
        assert row_of(database_url, used, seeded.tenant_id)["gpus_used"] == 1
        last = rows_of(database_url, "select event_type from outbox order by id desc limit 2")
        assert last == [("allocation.updated",), ("reservation.expired",)]

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}


def _index(client: ReservationClient, allocation_id: UUID) -> int:
    ((index,),) = rows_of(
        client.url, "select lower(units) - unit_base from claims c join nodes n on n.id = c.node_id where c.owner_id = %s",
        allocation_id,
    )  # fmt: skip
    return int(index)


def test_a_stranger_locks_nothing(database_url: str) -> None:
    """Another tenant's request is refused while all that a later end would lock is locked."""
    seeded = seed_with_seats(database_url)
    with connect(database_url) as connection:
        other = add_tenant(connection, "other").tenant_id

    async def way(client: ReservationClient) -> None:
        made = await renting(client, at(600))
        client.set_deadline(await client.held(slot_of(client, made), starts_at=at(900)), -1)
        async with await psycopg.AsyncConnection.connect(database_url) as holder:
            await holder.execute("select from nodes for no key update")
            await holder.execute("select from reservations for no key update")
            assert await outcome(set_end(client, made, None, tenant_id=other)) == (404, "not_found")

    as_client(database_url, seeded, way)


@pytest.mark.full
def test_ends_holds_and_sweepers_over_two_nodes_never_deadlock(database_url: str) -> None:
    """Four times the rounds: a sweeper that closed a hold between its discovery and its lock met one in twenty of them."""
    seeded = seed_with_seats(database_url, slice_nodes=2, seats=1)

    async def way(client: ReservationClient) -> None:
        made = [create_allocation(database_url, seeded, gpus=8, ends_at=at(600)) for _ in range(2)]
        for step in range(4 * ROUNDS):
            held = await client.held(client.slot(0, 0), client.slot(0, 1), "seat-0", starts_at=at(900 + 60 * step))
            client.set_deadline(held, -1)
            rival = client.hold(client.slot(0, step % 2), "seat-0", starts_at=at(7_200), ends_at=at(7_300))
            later = [set_end(client, one, at(900 + 60 * step + 30)) for one in made]
            sweeping = asyncio.ensure_future(expire_reservation(client.context, held))
            first, second, _ = await asyncio.gather(*map(outcome, (*later, rival)))
            await sweeping
            assert (first[0], second[0]) == (200, 200)
            assert client.state(held) == "expired"
            for (one,) in rows_of(database_url, "select id from reservations where state = 'hold'"):
                await client.cancel(one)

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert deadlocks(database_url) == 0


def test_an_overdue_hold_beside_a_live_one_stays(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = await renting(client, at(600))
        slot = slot_of(client, made)
        late = await client.held(slot, starts_at=at(900), ends_at=at(1_000))
        await client.held(slot, starts_at=at(1_000))
        client.set_deadline(late, -1)
        assert refusal(await set_end(client, made, None)) == (409, "resource_busy")
        assert client.state(late) == "hold", "a refusal expires nothing"

    as_client(database_url, seeded, way)


def test_a_hold_that_becomes_overdue_during_the_wait_for_the_lock_is_no_failure(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = await renting(client, at(600))
        held = await client.held(slot_of(client, made), starts_at=at(900))
        deadline = soon()
        with connect(database_url) as rival:
            rival.execute(
                "update reservations set (expires_at, hold_until, waits_until) = (%s, %s, %s)", [deadline] * 3
            )
            rival.execute("begin")
            rival.execute("select from nodes for no key update")
            extending = asyncio.ensure_future(set_end(client, made, None))
            await until_waiting(database_url)
            await wait_past(deadline)
            rival.execute("rollback")
        assert (await extending).status == 200
        assert client.state(held) == "expired"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


@pytest.mark.parametrize("first", ["end", "hold"])
def test_of_a_later_end_and_a_hold_of_the_time_after_the_first_commit_wins(database_url: str, first: str) -> None:
    """Both have decided on what was committed before, and wait for the node's lock; the later one decides again."""
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = await renting(client, at(600))
        change, hold = (
            set_end(client, made, at(1_200)),
            client.hold(slot_of(client, made), starts_at=at(700), ends_at=at(900)),
        )
        ahead, behind = await in_order(client.url, *((change, hold) if first == "end" else (hold, change)))
        changed, held = (ahead, behind) if first == "end" else (behind, ahead)
        assert (changed, held) == (
            ((200, ""), (409, "resource_busy")) if first == "end" else ((409, "resource_busy"), (201, ""))
        )
        assert len(claims_of(database_url, made)) == (2 if first == "end" else 1)

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}
    assert deadlocks(database_url) == 0


async def in_order(url: str, first: Awaitable[Any], second: Awaitable[Any]) -> list[tuple[int, str]]:
    """The outcomes of two requests that wait for the node's lock and get it in this order."""
    async with await psycopg.AsyncConnection.connect(url) as holder:
        await holder.execute("select from nodes for no key update")
        ahead = asyncio.ensure_future(outcome(first))
        await until_waiting(url, 1)
        behind = asyncio.ensure_future(outcome(second))
        await until_waiting(url, 2)
        await holder.rollback()
        return [await ahead, await behind]


def test_of_many_at_once_exactly_one_wins(database_url: str) -> None:
    seeded = seed_with_seats(database_url)
    winners: list[str] = []

    async def way(client: ReservationClient) -> None:
        for _ in range(ROUNDS):
            made = await renting(client, at(600))
            slot, later = slot_of(client, made), at(1_200)
            changes = [outcome(set_end(client, made, later)) for _ in range(2)]
            holds = [outcome(client.hold(slot, starts_at=at(700), ends_at=at(900))) for _ in range(2)]
            *changed, one, other = await asyncio.gather(*changes, *holds)
            won = [code for code, _ in (one, other)].count(201)
            assert {code for code, _ in changed} == ({409} if won else {200})
            assert won <= 1
            assert len(claims_of(database_url, made)) == (1 if won else 2), "the second found an equal end"
            winners.append("hold" if won else "end")
            await release(client.context, seeded, made)
            await clean_up(client.context, database_url, made)
            for (held,) in rows_of(database_url, "select id from reservations where state = 'hold'"):
                await client.cancel(held)

    as_client(database_url, seeded, way)
    assert len(winners) == ROUNDS
    assert violations(database_url) == []
    assert broken(database_url) == {}
    assert deadlocks(database_url) == 0


def test_the_constraint_is_the_last_guard_and_no_failure(database_url: str) -> None:
    """A rival that appears without the node's lock, which no command does: the request decides again and is refused."""
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = await renting(client, at(600))
        mine = claim_of(database_url, made)
        async with await psycopg.AsyncConnection.connect(database_url) as rival:
            await rival.execute(
                """insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, fence)
                   select node_id, tenant_id, 'reservation', uuidv7(), units, tstzrange(upper(during), null),
                          nextval('fences') from claims where id = %s""",
                (mine["id"],),
            )
            extending = asyncio.ensure_future(set_end(client, made, at(900)))
            await until_waiting(database_url)
            await rival.commit()
        assert refusal(await extending) == (409, "resource_busy")
        assert claim_of(database_url, made) == mine

    as_client(database_url, seeded, way)


@pytest.mark.parametrize("first", ["end", "release"])
def test_of_another_end_and_a_release_both_count_in_their_order(database_url: str, first: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = await renting(client, at(600))
        change, releasing = set_end(client, made, at(900)), release(client.context, seeded, made)
        if first == "end":
            assert await in_order(client.url, change, releasing) == [(200, ""), (202, "")]
        else:
            assert await in_order(client.url, releasing, change) == [(202, ""), (409, "invalid_state")]
        claim = claim_of(database_url, made)
        assert (claim["booked"], claim["occupied"], claim["inherited_fence"]) == (False, True, None)
        assert violations(database_url) == []
        await clean_up(client.context, database_url, made)
        assert allocation_of(database_url, made)["state"] == "released"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}


def test_an_allocation_that_waits_for_its_units_keeps_waiting_with_its_new_end(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        running, waiting = await back_to_back(client)
        for end in (at(600), at(86_400), at(30)):
            await ends(client, waiting, end)
            row, claim = allocation_of(database_url, waiting), claim_of(database_url, waiting)
            assert (row["waits_for"], claim["booked"], claim["occupied"]) == ("units", True, False)
            assert claim["occupied_from"] is None
            assert row["waits_until"] == min(end, row["waits_since"] + LONGEST_WAIT)
        assert refusal(await set_end(client, running, at(600))) == (409, "invalid_state"), "it overran, and is over"
        assert violations(database_url) == []
        await release(client.context, seeded, running)
        await clean_up(client.context, database_url, running)
        row, claim = allocation_of(database_url, waiting), claim_of(database_url, waiting)
        assert (row["waits_for"], claim["occupied"], claim["inherited_fence"]) == ("worker", True, None)
        await provision(client.context, database_url, waiting)

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}


def test_one_that_waits_and_is_released_after_another_end_leaves_nothing(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        _, waiting = await back_to_back(client)
        await ends(client, waiting, at(600))
        await release(client.context, seeded, waiting)
        assert allocation_of(database_url, waiting)["state"] == "released"
        assert claim_of(database_url, waiting)["closed_at"] is not None

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}
