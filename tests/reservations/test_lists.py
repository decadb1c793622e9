"""Holds and confirms that share a transaction are answered as if each were alone, and a batch waits for no lock."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Sequence
from typing import Any

from orchestrator.operations.store.operations import Answer
from orchestrator.reservations.commands.confirm import confirm_reservation
from orchestrator.reservations.hold_requests import HoldRequest
from tests.allocations.driving import rows_of
from tests.allocations.seeding import connect
from tests.reservations.holding import ReservationClient, as_client, deadlocks, seed_with_seats, violations
from tests.support.reservation_lists import ask, code_of, confirm_of, held_id, hold_all, settled


def test_each_of_a_list_is_answered_as_if_it_were_alone(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=2, slice_nodes=2)

    async def scene(client: ReservationClient) -> list[str]:
        taken = await client.held(client.slot(7))
        asked = [
            ask(client, client.slot(0)),
            ask(client, client.slot(0)),
            ask(client, client.slot(7)),
            ask(client, "slot:unknown"),
            ask(client, client.slot(1), client.slot(2), client.slot(0, node=1), "seat-0"),
            ask(client, "seat-0"),
            ask(client, "seat-1", ttl_seconds=0),
            ask(client, "seat-1"),
        ]
        results = await hold_all(client, asked)
        codes = [code_of(result) for result in results]
        assert sorted(codes[:2]) == ["201", "resource_busy"]
        (refused,) = [json.loads(one.body) for one in results[:2] if isinstance(one, Answer) and one.status == 409]
        won = held_id(results[codes.index("201")])
        assert refused["conflicts"] == [f"reservations/{won}"]
        assert isinstance(results[2], Answer)
        assert json.loads(results[2].body)["conflicts"] == [f"reservations/{taken}"]
        again = await settled(await hold_all(client, asked))
        assert [code_of(result) for result in again] == codes, "each key has its stored answer"
        assert all(isinstance(result, Answer) and result.replayed for result in again)
        return codes[2:]

    codes = as_client(database_url, seeded, scene)
    assert codes[:2] == ["resource_busy", "resource_not_found"]
    assert sorted(codes[2:4]) == ["201", "resource_busy"]
    assert codes[4:] == ["ttl_out_of_range", "201"]
    assert violations(database_url) == []


def test_one_whose_node_is_locked_keeps_no_other_waiting(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=1, slice_nodes=2)

    async def scene(client: ReservationClient) -> None:
        with connect(database_url) as rival:
            rival.execute("begin")
            rival.execute("select from nodes where id = %s for no key update", (seeded.nodes[0].id,))
            results = await hold_all(
                client, [ask(client, client.slot(0)), ask(client, client.slot(0, node=1)), ask(client, "seat-0")]
            )
            assert [code_of(result) for result in results] == ["deferred", "201", "201"]
            rival.execute("rollback")
        assert [code_of(result) for result in await settled(results)] == ["201"] * 3

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []


def test_an_overdue_hold_in_the_way_is_ended_by_the_list_and_gives_back_its_quota(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=1, slice_nodes=2, gpus_limit=3)

    async def scene(client: ReservationClient) -> None:
        wide = await client.held(client.slot(0), client.slot(1, node=1), "seat-0")
        client.set_deadline(wide, -1)
        results = await hold_all(
            client, [ask(client, client.slot(0)), ask(client, client.slot(0)), ask(client, client.slot(0, node=1))]
        )
        assert sorted(code_of(result) for result in results[:2]) == ["201", "resource_busy"]
        assert code_of(results[2]) == "201"
        assert client.state(wide) == "expired"
        results = await hold_all(client, [ask(client, client.slot(1, node=1)), ask(client, "seat-0")])
        assert [code_of(result) for result in results] == ["201", "201"], (
            "all units are free, also those that no item of the batch requested"
        )

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []
    assert rows_of(database_url, "select gpus_used from tenant_quotas") == [(3,)]


def test_an_overdue_hold_that_is_locked_keeps_no_other_request_waiting(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=1, slice_nodes=3)

    async def scene(client: ReservationClient) -> None:
        ended, seated = await client.held(client.slot(0)), await client.held(client.slot(1, node=1), "seat-0")
        for one in (ended, seated):
            client.set_deadline(one, -1)
        with connect(database_url) as rival:
            rival.execute("begin")
            rival.execute("select from reservations where id = %s for no key update", (ended,))
            rival.execute("select from resources where id = 'seat-0' for no key update")
            results = await hold_all(
                client,
                [ask(client, client.slot(0)), ask(client, client.slot(1, node=1)), ask(client, client.slot(0, node=2))],
            )
            assert [code_of(result) for result in results] == ["deferred", "deferred", "201"]
            assert [client.state(one) for one in (ended, seated)] == ["hold", "hold"]
            rival.execute("rollback")
        assert [code_of(result) for result in await settled(results)] == ["201"] * 3
        assert [client.state(one) for one in (ended, seated)] == ["expired", "expired"]

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []


def test_a_list_cannot_pass_a_quota(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2, gpus_limit=2)

    async def scene(client: ReservationClient) -> list[str]:
        results = await hold_all(client, [ask(client, client.slot(index)) for index in range(4)])
        return [code_of(result) for result in await settled(results)]

    assert sorted(as_client(database_url, seeded, scene)) == ["201", "201", "quota_exceeded", "quota_exceeded"]
    assert violations(database_url) == []


def test_a_list_of_confirms(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=1)

    async def scene(client: ReservationClient) -> None:
        fresh, done, overdue, locked, gone = [await client.held(client.slot(index)) for index in range(5)]
        await client.confirm(done)
        await client.cancel(gone)
        client.set_deadline(overdue, -1)
        confirms = [
            confirm_of(client, fresh),
            confirm_of(client, done),
            confirm_of(client, fresh, holder="other"),
            confirm_of(client, uuid.uuid4()),
            confirm_of(client, gone),
            confirm_of(client, overdue),
            confirm_of(client, locked),
        ]
        with connect(database_url) as rival:
            rival.execute("begin")
            rival.execute("select from reservations where id = %s for no key update", (locked,))
            results = await confirm_reservation(client.context, confirms)
            rival.execute("rollback")
        codes = [code_of(result) for result in results]
        assert codes == [
            "200", "200", "holder_mismatch", "reservation_not_found", "invalid_state", "deferred", "deferred",
        ]  # fmt: skip
        words = [json.loads(one.body)["result"] for one in results[:2] if isinstance(one, Answer)]
        assert words == ["ok", "noop"]
        committed = rows_of(database_url, "select operation_key from outbox where event_type = 'operation.committed'")
        assert committed == [(confirms[1].operation.key,)], "the one without any other event"
        late = await settled(results)
        assert [code_of(result) for result in late[5:]] == ["invalid_state", "200"]
        assert [client.state(one) for one in (fresh, overdue, locked)] == ["confirmed", "expired", "confirmed"]
        again = await settled(await confirm_reservation(client.context, confirms))
        assert [code_of(result) for result in again] == [code_of(result) for result in late]
        assert all(isinstance(result, Answer) and result.replayed for result in again)

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []


def test_lists_for_the_same_units_never_wait_for_each_other_in_a_circle(database_url: str) -> None:
    """Bundles across nodes and seats in every order, from several sessions at once: no deadlock, no two rights."""
    seeded = seed_with_seats(database_url, seats=4, slice_nodes=4)
    drawn = random.Random(5)
    before = deadlocks(database_url)

    async def scene(client: ReservationClient) -> list[str]:
        names = [client.slot(index, node) for index in range(3) for node in range(4)] + [f"seat-{n}" for n in range(4)]
        lists = [[ask(client, *drawn.sample(names, 3)) for _ in range(6)] for _ in range(12)]

        async def send(asked: Sequence[HoldRequest]) -> list[str]:
            return [code_of(result) for result in await settled(await hold_all(client, asked))]

        return [code for codes in await asyncio.gather(*(send(asked) for asked in lists)) for code in codes]

    codes = as_client(database_url, seeded, scene)
    assert set(codes) == {"201", "resource_busy"}
    assert deadlocks(database_url) == before
    assert violations(database_url) == []
    held: list[dict[str, Any]] = rows_of(database_url, "select from reservations where state = 'hold'")
    assert len(held) == codes.count("201")
