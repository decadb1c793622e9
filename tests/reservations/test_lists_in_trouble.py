"""Items of a batch that committed are answered so, whatever fails later; an item's error is its own (P12)."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.reservations.commands.confirm import confirm_reservation
from orchestrator.reservations.hold_requests import GpuRequest
from tests.allocations.driving import rows_of
from tests.allocations.seeding import REGION, SLICE_SKU, connect
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats, violations
from tests.support.reservation_lists import ask, code_of, confirm_of, hold_all, settled

REFUSALS_FIND_NO_DISK = """
create function disk_full() returns trigger language plpgsql as $$ begin
    raise exception 'no space left on device' using errcode = 'disk_full';
end $$;
create trigger disk_full before insert on operations for each row when (new.status >= 400) execute function disk_full();
"""
LONG_NAMES = "insert into resources (id) select rpad(n::text, 128, 'x') from generate_series(1000, 2023) n returning id"


def test_refusals_that_cannot_be_stored_take_no_answer_from_those_that_succeeded(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=3)

    async def scene(client: ReservationClient) -> None:
        held = await client.held("seat-2")
        with connect(database_url) as operator:
            operator.execute(REFUSALS_FIND_NO_DISK)
        results = await hold_all(client, [ask(client, "seat-0"), ask(client, "seat-2"), ask(client, "seat-1")])
        assert [code_of(result) for result in results] == ["201", "database_unavailable", "201"]
        results = await confirm_reservation(
            client.context, [confirm_of(client, held), confirm_of(client, held, holder="other")]
        )
        assert [code_of(result) for result in results] == ["200", "database_unavailable"]
        assert client.state(held) == "confirmed"

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []


def test_more_than_one_reservation_can_describe_is_refused_by_name_and_harms_no_other(database_url: str) -> None:
    """A thousand names of full length do not fit an event; more slots than a reservation can name are not even tried."""
    seeded = seed_with_seats(database_url, seats=2)
    names = [row[0] for row in rows_of(database_url, LONG_NAMES)]

    async def scene(client: ReservationClient) -> None:
        slots = replace(ask(client, "seat-0"), wanted=GpuRequest(SLICE_SKU, 8, REGION, 129))
        asked = [ask(client, "seat-0"), ask(client, *names), slots, ask(client, "seat-1")]
        results = await settled(await hold_all(client, asked))
        assert [code_of(result) for result in results] == ["201", "invalid", "invalid", "201"]
        half = await client.hold(*names[:512])
        assert half.status == 201

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []


def test_an_unforeseen_failure_fails_its_own_request_alone(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=3)
    with connect(database_url) as operator:
        operator.execute("alter table reservations add check (holder_id <> 'unforeseen')")

    async def scene(client: ReservationClient) -> list[str]:
        odd = ask(client, "seat-1")
        odd = replace(odd, hold=replace(odd.hold, holder_id="unforeseen"))
        results = await hold_all(client, [ask(client, "seat-0"), odd, ask(client, "seat-2")])
        assert [code_of(result) for result in results] == ["deferred"] * 3
        return [code_of(result) for result in await settled([results[0], results[2]])]

    assert as_client(database_url, seeded, scene) == ["201", "201"]
