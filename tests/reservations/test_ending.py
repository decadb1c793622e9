"""Holds and windows that end by time, and the answers about reservations past their retention."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from orchestrator.operations.execution import Limits
from orchestrator.operations.store.operations import Answer
from orchestrator.placement.store.placing import Create
from orchestrator.problems import Problem
from orchestrator.reservations.commands.expire import end_window, expire_reservation
from orchestrator.reservations.queries import find_reservation
from orchestrator.reservations.refusals import ExpirationIndexFull, ReservationNotFound, ReservationRetired
from orchestrator.reservations.states import reservation_id
from orchestrator.verification import run_checks
from tests.allocations.driving import rows_of
from tests.allocations.seeding import REGION, SLICE_SKU, add_tenant, connect
from tests.placement.fleet import create_all
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats, violations, wanted_gpus
from tests.reservations.passing_time import ALMOST, let_come
from worker.sweepers.reservations import sweep_overdue_holds, sweep_retired_reservations, sweep_windows_over

YEAR = timedelta(days=365)


def test_the_sweeper_ends_the_earliest_first_and_a_bounded_number(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=6)

    async def way(client: ReservationClient) -> None:
        ids = [await client.held(f"seat-{n}") for n in range(6)]
        for n, one in enumerate(ids[:5]):
            client.set_deadline(one, -1000 * (n + 1))
        await sweep_overdue_holds(client.context, 3)
        assert [client.state(one) for one in ids] == ["hold", "hold", "expired", "expired", "expired", "hold"]
        await sweep_overdue_holds(client.context, 3)
        assert [client.state(one) for one in ids] == [*["expired"] * 5, "hold"]
        told = "select payload ->> 'reservation_id' from outbox where event_type = 'reservation.expired' order by id"
        assert [UUID(row[0]) for row in rows_of(database_url, told)] == [ids[n] for n in (4, 3, 2, 1, 0)]

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_the_hold_that_ends_an_overdue_one_has_its_units_from_that_instant_on(database_url: str) -> None:
    """Both use one reading of the clock: `berth verify` finds no instant with two owners, and one if the end is moved by 1 µs."""
    seeded = seed_with_seats(database_url, seats=1)

    async def way(client: ReservationClient) -> None:
        overdue = await client.held("seat-0", client.slot(0))
        client.set_deadline(overdue, -1)
        await client.held("seat-0", client.slot(0))

    as_client(database_url, seeded, way)
    assert two_rights(database_url) == []
    with connect(database_url) as connection:
        connection.execute(
            "update reservations set ended_at = ended_at + interval '1 microsecond' where state = 'expired'"
        )
    assert len(two_rights(database_url)) == 2


def two_rights(url: str) -> list[str]:
    """What `berth verify` says of units that had two owners at one instant."""
    return [sentence for verdict in run_checks(url) if verdict.promise == "P1" for sentence in verdict.violations]


def test_nothing_ends_before_its_time(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=2)

    async def way(client: ReservationClient) -> None:
        held, confirmed = await client.held("seat-0"), await client.held("seat-1", ends_at=datetime.now(UTC) + YEAR)
        await client.confirm(confirmed)
        for one in (held, confirmed):
            assert not await expire_reservation(client.context, one)
            assert not await end_window(client.context, one)
        assert [client.state(one) for one in (held, confirmed)] == ["hold", "confirmed"]

    as_client(database_url, seeded, way)


def test_a_confirmed_one_never_expires_and_its_window_ends_as_released(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=2)

    async def way(client: ReservationClient) -> None:
        soon = datetime.now(UTC) + timedelta(hours=1)
        short, open_ended = await client.held("seat-0", client.slot(0), ends_at=soon), await client.held("seat-1")
        for one in (short, open_ended):
            await client.confirm(one)
        await sweep_overdue_holds(client.context, 10)
        await sweep_windows_over(client.context, 10)
        assert [client.state(one) for one in (short, open_ended)] == ["confirmed", "confirmed"]
        almost = let_come(database_url, soon, left=ALMOST)
        await sweep_windows_over(client.context, 10)
        assert not await end_window(client.context, short)
        assert client.state(short) == "confirmed"
        over_at = let_come(database_url, almost)
        await sweep_windows_over(client.context, 10)
        assert [client.state(one) for one in (short, open_ended)] == ["released", "confirmed"]
        judged = "select payload ->> 'judged_at' from outbox where event_type = 'reservation.released'"
        assert datetime.fromisoformat(rows_of(database_url, judged)[0][0]) >= over_at
        assert (await client.hold(client.slot(0))).status == 201

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_what_is_retired_stays_retired_and_leaks_nothing(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=9)
    with connect(database_url) as connection:
        stranger = add_tenant(connection, "stranger")

    async def told(client: ReservationClient, one: UUID, tenant_id: UUID | None = None) -> str:
        try:
            found = await find_reservation(client.context.database, one, tenant_id or seeded.tenant_id, 0)
        except Problem as problem:
            return problem.code
        return str(found["status"])

    async def way(client: ReservationClient) -> None:
        lives_on, ended, late, recent = [await client.held(f"seat-{n}") for n in range(4)]
        other = await client.held("seat-4", tenant_id=stranger.tenant_id)
        last = await client.held("seat-5")
        above = await client.held("seat-6", tenant_id=stranger.tenant_id)
        await client.confirm(lives_on)
        for one in (ended, late, recent, last):
            await client.cancel(one)
        assert {await told(client, one) for one in (ended, late, recent, last)} == {"cancelled"}
        await sweep_retired_reservations(client.context, 10)
        assert await told(client, ended) == "cancelled", "its time has not come"
        with connect(database_url) as connection:
            connection.execute(
                "update reservations set retire_after = clock_timestamp() where id = any(%s)", ([ended, last],)
            )
        await sweep_retired_reservations(client.context, 10)
        assert [await told(client, one) for one in (lives_on, ended, late, recent, last)] == [
            "confirmed", "reservation_retired", "cancelled", "cancelled", "reservation_retired",
        ]  # fmt: skip
        # Another tenant's live reservation is answered like a missing one, below the watermark and above it.
        assert await told(client, other) == "reservation_retired"
        assert await told(client, other, stranger.tenant_id) == "hold"
        assert await told(client, above) == "reservation_not_found"
        assert await told(client, reservation_id(0, 2**62)) == "reservation_not_found"
        assert await told(client, reservation_id(9, 1)) == "reservation_not_found"
        for verb in (client.confirm, client.cancel):
            assert json.loads((await verb(ended)).body)["code"] == "reservation_retired"
        assert rows_of(database_url, "select from claims where owner_id = %s", ended) == [], "nothing is kept of it"
        await client.cancel(lives_on)
        assert await told(client, lives_on) == "cancelled", "long-lived rows below the watermark stay readable"
        assert await client.held("seat-0") > above, "ids are never used again"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_retirement_goes_earliest_first(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=3)

    async def way(client: ReservationClient) -> None:
        ids = [await client.held(f"seat-{n}") for n in range(3)]
        for one in ids:
            await client.cancel(one)
        with connect(database_url) as connection:
            for n, one in enumerate(ids):
                connection.execute(
                    "update reservations set retire_after = clock_timestamp() - make_interval(secs => %s) where id = %s",
                    (10 * n + 10, one),
                )
        await sweep_retired_reservations(client.context, 1)

    as_client(database_url, seeded, way)
    assert rows_of(database_url, "select count(*) from reservations") == [(0,)]
    assert rows_of(database_url, "select position from reservation_watermark") == [(3,)]


def test_bounds_have_names_and_overdue_holds_block_no_other(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=9)

    async def way(client: ReservationClient) -> None:
        ids = [await client.held(f"seat-{n}") for n in range(3)]
        with pytest.raises(ExpirationIndexFull):
            await client.hold("seat-3")
        assert rows_of(database_url, "select count(*) from operations where code is distinct from 'ok'") == [(0,)]
        await client.confirm(ids[0])
        ids.append(await client.held("seat-3"))
        with pytest.raises(Problem) as full:
            await client.hold("seat-4")
        assert full.value.code == "reservation_table_full"
        assert full.value.status == 503
        for one in ids[1:3]:
            client.set_deadline(one, -1)
        await client.held("seat-4")
        assert [client.state(one) for one in ids] == ["confirmed", "expired", "expired", "hold"]
        # What ends something is never refused for want of room.
        assert (await client.cancel(ids[0])).status == 200

    as_client(database_url, seeded, way, limits=Limits(reservations_max=4, holds_max=3))
    assert violations(database_url) == []


def test_a_quota_that_overdue_holds_use_up_is_freed_first(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2, gpus_limit=4)

    async def way(client: ReservationClient) -> None:
        late = await client.held(*[client.slot(n) for n in range(4)])
        refused = await client.hold(client.slot(0, node=1))
        assert json.loads(refused.body)["code"] == "quota_exceeded"
        client.set_deadline(late, -1)
        await client.held(client.slot(0, node=1))
        await client.held(wanted=wanted_gpus(2))
        assert client.state(late) == "expired"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_a_create_is_not_refused_for_a_quota_that_overdue_holds_use_up(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2, gpus_limit=4)

    async def way(client: ReservationClient) -> None:
        late = await client.held(*[client.slot(n) for n in range(4)])
        assert await _codes(client, 1) == ["quota_exceeded"]
        client.set_deadline(late, -1)
        assert sorted(await _codes(client, 5)) == ["ok"] * 4 + ["quota_exceeded"]
        assert client.state(late) == "expired"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


async def _codes(client: ReservationClient, creates: int) -> list[str]:
    """Codes of the answers to so many creates of one GPU in one list."""
    answers = await create_all(client.context, client.catalogue, [_create_of(client) for _ in range(creates)])
    return [json.loads(one.body).get("code", "ok") if isinstance(one, Answer) else one.code for one in answers]


def _create_of(client: ReservationClient) -> Create:
    return Create(
        operation=client.operation(client.seeded.tenant_id), tenant_id=client.seeded.tenant_id, actor_id="test", sku=SLICE_SKU,
        gpus=1, region=REGION, image=None, ssh_key_ids=(client.seeded.ssh_key_id,), name=None, labels={}, user_data=None,
        correlation_id=uuid.uuid4(),
    )  # fmt: skip


def test_a_confirm_past_the_deadline_ends_the_hold_and_is_remembered_in_one_transaction(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        late = await client.held(client.node())
        client.set_deadline(late, -1)
        first = await client.confirm(late, key="k")
        assert (first.status, json.loads(first.body)["state"]) == (409, "expired")
        assert json.loads(first.body)["server_time"]
        again = await client.confirm(late, key="k")
        assert (again.body, again.replayed) == (first.body, True)
        assert (await client.hold(client.node())).status == 201

    as_client(database_url, seeded, way)
    told = rows_of(
        database_url,
        """select event_type, operation_key, xmin::text::bigint from outbox
           where event_type in ('reservation.expired', 'operation.refused') order by id""",
    )
    assert [row[:2] for row in told] == [("reservation.expired", "k"), ("operation.refused", "k")]
    assert told[0][2] == told[1][2], "one transaction"
    assert violations(database_url) == []


def test_unknown_ids_are_unknown(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        for one in (UUID(int=0), reservation_id(0, 1), UUID(int=2**128 - 1)):
            with pytest.raises(ReservationNotFound):
                await find_reservation(client.context.database, one, seeded.tenant_id, 0)
        with connect(database_url) as connection:
            connection.execute("update reservation_watermark set position = 5")
        with pytest.raises(ReservationRetired):
            await find_reservation(client.context.database, reservation_id(0, 5), seeded.tenant_id, 0)
        with pytest.raises(ReservationNotFound):
            await find_reservation(client.context.database, reservation_id(0, 6), seeded.tenant_id, 0)

    as_client(database_url, seeded, way)
