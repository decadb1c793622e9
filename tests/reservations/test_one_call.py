"""Confirm, late confirm, cancel and consume are one call each: no lock is held between two round trips."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Never
from uuid import UUID

import pytest

from orchestrator.database.calls import CallGroup, FunctionCall
from orchestrator.database.transactions import Database
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.reservations.commands import consume as consuming
from orchestrator.reservations.commands.cancel import cancel_reservation
from orchestrator.reservations.commands.confirm import confirm_for_tenant
from orchestrator.reservations.store.confirming import Confirm, confirm_all
from orchestrator.reservations.store.consuming import ReservedUnits, find_reserved_units
from tests.allocations.driving import ADMIN, rows_of
from tests.allocations.seeding import SLICE_SKU
from tests.reservations.holding import HOLDER, ReservationClient, as_client, seed_with_seats, violations
from tests.reservations.turning_over.consuming import code_of, consume, gpus

OPERATOR = uuid.uuid4()


def operators() -> Operation:
    """A write of the operator, under a new key."""
    return Operation(OPERATOR, uuid.uuid4().hex, os.urandom(32), 3600.0, ending=True)


async def confirm_by_operator(client: ReservationClient, reservation_id: UUID) -> Answer:
    """The operator's confirm in the place of the holder."""
    return await confirm_for_tenant(client.context, operators(), ADMIN, client.seeded.tenant_id, reservation_id, HOLDER)


async def cancel_by_operator(client: ReservationClient, reservation_id: UUID) -> Answer:
    """The operator's cancel in the place of the holder."""
    return await cancel_reservation(client.context, operators(), ADMIN, client.seeded.tenant_id, reservation_id, HOLDER)


def test_no_transaction_spans_two_round_trips(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With effect or refused by what the call itself stores; other refusals are stored afterwards, under no lock."""
    seeded = seed_with_seats(database_url, seats=9)

    def refuse(self: Database) -> Never:
        raise AssertionError("a transaction of several statements")

    async def way(client: ReservationClient) -> None:
        seats = [await client.held(f"seat-{n}") for n in range(6)]
        slots = [await client.held(client.slot(n)) for n in range(2)]
        for late in (seats[4], seats[5], slots[1]):
            client.set_deadline(late, -5)
        monkeypatch.setattr(Database, "transaction", refuse)
        monkeypatch.setattr(Database, "autocommit", refuse)
        answers = [
            await client.confirm(seats[0]), await client.confirm(seats[0]), await confirm_by_operator(client, seats[1]),
            await confirm_by_operator(client, seats[1]), await client.cancel(seats[2]),
            await cancel_by_operator(client, seats[3]), await consume(client, slots[0], sku=SLICE_SKU),
        ]  # fmt: skip
        assert [answer.status for answer in answers] == [200] * 6 + [201]
        refused = [
            await client.confirm(seats[4]), await confirm_by_operator(client, seats[5]),
            await consume(client, slots[1], sku=SLICE_SKU),
        ]  # fmt: skip
        assert [code_of(answer) for answer in refused] == ["invalid_state"] * 3
        ends = ["confirmed"] * 2 + ["cancelled"] * 2 + ["expired"] * 2 + ["consumed", "expired"]
        assert [client.state(one) for one in [*seats, *slots]] == ends

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_a_late_confirm_ends_the_hold_with_its_refusal_and_both_events(database_url: str) -> None:
    """By the holder and by the operator, whose refusal is no tenant's."""
    seeded = seed_with_seats(database_url, seats=2)

    async def way(client: ReservationClient) -> None:
        for tenant, seat, confirm in ((seeded.tenant_id, "seat-0", client.confirm), (None, "seat-1", None)):
            held = await client.held(seat)
            client.set_deadline(held, -5)
            answer = await (confirm(held) if confirm is not None else confirm_by_operator(client, held))
            body = json.loads(answer.body)
            assert (answer.status, body["code"], body["state"]) == (409, "invalid_state", "expired")
            assert body["detail"] == "the hold's deadline has passed; the reservation is expired"
            ((key, stored, event, ended),) = rows_of(
                database_url,
                """select o.key, o.body, o.event_id, r.ended_event from operations o join reservations r on r.id = o.subject_id
                   where o.status = 409 and r.id = %s""",
                held,
            )
            assert stored == answer.body
            told = "select event_type, tenant_id, operation_key from outbox where event_id = %s"
            assert rows_of(database_url, told, event) == [("operation.refused", tenant, key)]
            assert rows_of(database_url, told, ended) == [("reservation.expired", seeded.tenant_id, key)]
        audited = rows_of(database_url, "select code from audit order by id")
        assert audited.count(("invalid_state",)) == 2, "each late confirm is recorded with its refusal"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def _caller(reservation_id: UUID) -> dict[str, str]:
    """What the audit states of the operator."""
    return {
        "kind": "admin",
        "id": ADMIN.id,
        "action": "reservation.confirm",
        "subject": f"reservations/{reservation_id}",
    }


def test_an_operators_list_is_confirmed_in_one_call_and_audited_item_by_item(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=3)

    async def way(client: ReservationClient) -> None:
        held = [await client.held(f"seat-{n}") for n in range(3)]
        await client.cancel(held[2])
        asked = [
            Confirm(replace(operators(), caller=_caller(one)), seeded.tenant_id, one, HOLDER, ADMIN)
            for one in (held[0], held[1], held[1], held[2])
        ]
        async with client.context.database.function_call(CallGroup.RESERVATIONS) as call:
            outcomes = await confirm_all(call, asked)
        assert [type(outcome).__name__ for outcome in outcomes] == ["Confirmed"] * 3 + ["InvalidState"]
        audited = (
            "select principal_id, action, subject, code from audit where action = 'reservation.confirm' order by id"
        )
        subjects = [f"reservations/{one}" for one in held]
        first, second = sorted(asked[1:3], key=lambda one: one.operation.key)
        noop = asked.index(second)
        results = ["noop" if n == noop else "ok" for n in range(3)]
        assert sorted(rows_of(database_url, audited)) == sorted(
            (ADMIN.id, "reservation.confirm", subject, result)
            for subject, result in zip((subjects[0], subjects[1], subjects[1]), results, strict=True)
        )
        named = "select payload ->> 'actor_kind', payload ->> 'actor_id' from outbox where event_type = 'reservation.confirmed'"
        assert rows_of(database_url, named) == [("admin", ADMIN.id)] * 2
        keys = {key for (key,) in rows_of(database_url, "select key from operations where scope = %s", OPERATOR)}
        assert keys == {asked[0].operation.key, first.operation.key, second.operation.key}

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_each_of_many_consumers_gets_a_claim_however_many_wait(database_url: str) -> None:
    """More than a command tries: what the catalogue admitted holds for every claim of equal units."""
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        held = await client.held(wanted=gpus(8))
        answers = await asyncio.gather(*(consume(client, held) for _ in range(8)))
        assert [answer.status for answer in answers] == [201] * 8
        assert client.state(held) == "consumed"

    as_client(database_url, seeded, way, pool_size=10)
    assert rows_of(database_url, "select count(distinct claim_id) from allocations") == [(8,)]
    assert violations(database_url) == []


def test_units_that_were_not_admitted_are_admitted_first(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claims changed after they were read: nothing is turned over by what was read."""
    seeded = seed_with_seats(database_url)
    reads: list[Sequence[ReservedUnits]] = []

    async def read_too_early(call: FunctionCall, *about: Any) -> Sequence[ReservedUnits]:
        reads.append(await find_reserved_units(call, *about) if reads else [])
        return reads[-1]

    async def way(client: ReservationClient) -> None:
        held = await client.held(client.slot(0))
        monkeypatch.setattr(consuming, "find_reserved_units", read_too_early)
        assert (await consume(client, held, sku=SLICE_SKU)).status == 201
        assert [len(read) for read in reads] == [0, 1]

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_units_of_each_kind_are_admitted_for_themselves(database_url: str) -> None:
    """One GPU of a node is sold as a slice; three of another node are not, whichever of the claims is older."""
    seeded = seed_with_seats(database_url, slice_nodes=2)

    async def way(client: ReservationClient) -> None:
        for one, three in ((0, 1), (1, 0)):
            held = await client.held(client.slot(7, one), *(client.slot(index, three) for index in range(3)))
            answers = [await consume(client, held, sku=SLICE_SKU) for _ in range(2)]
            reasons = {json.loads(answer.body)["reason"] for answer in answers if answer.status == 409}
            assert reasons == {"count_not_allowed"}
            assert client.state(held) == "hold"
            await client.cancel(held)
        assert rows_of(database_url, "select distinct gpus from allocations") == [(1,)]

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
