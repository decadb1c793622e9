"""Another `ends_at`: the claim is closed and its successor inserted, in one transaction; refusals leave nothing behind."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from orchestrator.allocations.commands.force import force_cleanup
from orchestrator.allocations.commands.release import release_at_end
from orchestrator.operations.execution import Limits
from tests.allocations.driving import (
    ADMIN,
    allocation_of,
    claim_of,
    clean_up,
    events_of,
    provision,
    release,
    row_of,
    rows_of,
)
from tests.allocations.ending import at, broken, claims_of, ends, outcome, refusal, set_end, traces
from tests.allocations.seeding import SLICE_SKU, add_tenant, connect, create_allocation
from tests.consumers.metered import meter_all
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats
from tests.reservations.passing_time import let_come
from tests.reservations.turning_over.consuming import consumed, soon, violations
from tests.support.rival_sessions import until_waiting
from tests.support.waiting import wait_past
from worker.sweepers.allocation_ends import announce_ends, release_ended

LAST_UPDATE = "select payload from outbox where event_type = 'allocation.updated' order by id desc limit 1"


def test_the_claim_is_closed_and_its_successor_has_the_new_end(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        first, later, sooner = at(600), at(3_600), at(900)
        made = create_allocation(database_url, seeded, ends_at=first, gpus=2)
        await provision(client.context, database_url, made)
        before = allocation_of(database_url, made)
        node = row_of(database_url, "select * from nodes")
        for step, end in enumerate((later, sooner, None, first), start=1):
            (*closed, old) = claims_of(database_url, made)
            body = await ends(client, made, end)
            assert (body["ends_at"] is None) == (end is None)
            (*history, now) = claims_of(database_url, made)
            (payload,) = rows_of(database_url, LAST_UPDATE)[0]
            assert history[:-1] == closed, "what was closed stays"
            assert history[-1] == {
                **old, "booked": False, "occupied": False, "closed_at": now["starts"], "occupied_until": now["starts"],
            }  # fmt: skip
            assert (now["units"], now["ends"], now["booked"], now["occupied"]) == (old["units"], end, True, True)
            assert now["fence"] > old["fence"]
            assert now["occupied_from"] == now["starts"] > old["starts"]
            assert (payload["changed"], payload["claim_fence"]) == (["ends_at"], now["fence"])
            assert payload["fence"] == claims_of(database_url, made)[0]["fence"] == now["inherited_fence"]
            after = allocation_of(database_url, made)
            assert (after["ends_at"], after["claim_id"]) == (end, now["id"])
            assert after["row_version"] == before["row_version"] + step == payload["row_version"]
            unchanged = before.keys() - {"ends_at", "claim_id", "row_version"}
            assert {name: after[name] for name in unchanged} == {name: before[name] for name in unchanged}
        after_node = row_of(database_url, "select * from nodes")
        assert after_node["row_version"] > node["row_version"], "the states of its units in time changed"
        assert (after_node["free_mask"], after_node["fit_class"]) == (node["free_mask"], node["fit_class"])
        assert row_of(database_url, "select gpus_used from tenant_quotas")["gpus_used"] == 2
        notes = rows_of(
            database_url, "select detail, fence from allocation_timeline where code = 'updated' order by id"
        )
        assert notes[2][0].startswith("changed: ends_at; the end was ")
        assert notes[2][0].endswith(" and is open")
        assert broken(database_url) == {}
        await release(client.context, seeded, made)
        await clean_up(client.context, database_url, made)
        assert claim_of(database_url, made)["closed_at"] is not None

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}


def test_one_request_changes_all_members_with_one_event(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made, end = create_allocation(database_url, seeded, name="old"), at(600)
        before = allocation_of(database_url, made)["row_version"]
        body = await ends(client, made, end, key="k", name="new", labels={"a": "b"})
        assert (body["name"], body["labels"], body["row_version"]) == ("new", {"a": "b"}, before + 1)
        assert events_of(database_url, made).count("allocation.updated") == 1
        (payload,) = rows_of(database_url, LAST_UPDATE)[0]
        assert payload["changed"] == ["name", "labels", "ends_at"]
        again = await set_end(client, made, end, key="k", name="new", labels={"a": "b"})
        assert (json.loads(again.body), again.replayed) == (body, True)
        await ends(client, made, end, name="newer")
        (payload,) = rows_of(database_url, LAST_UPDATE)[0]
        assert (payload["changed"], "judged_at" in payload) == (["name"], False)
        assert len(claims_of(database_url, made)) == 2

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_an_equal_end_changes_nothing(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        end = at(600)
        made, endless = create_allocation(database_url, seeded, ends_at=end), create_allocation(database_url, seeded)
        before = traces(database_url)
        await ends(client, made, end.astimezone(), key="equal")
        await ends(client, endless, None)
        assert traces(database_url) == before
        assert row_of(database_url, "select code from operations where key = 'equal'")["code"] == "noop"

    as_client(database_url, seeded, way)


def test_an_end_that_a_create_could_not_have_is_refused(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded, ends_at=at(600))
        await provision(client.context, database_url, made)
        before = traces(database_url)
        for end in (at(-1), at(-86_400), at(7_200)):
            assert refusal(await set_end(client, made, end, name="new")) == (422, "window_invalid")
        assert traces(database_url) == before
        await ends(client, made, at(3_500))

    as_client(database_url, seeded, way, limits=Limits(window_seconds_max=3_600))
    assert violations(database_url) == []


def test_another_tenants_allocation_is_unknown(database_url: str) -> None:
    seeded = seed_with_seats(database_url)
    with connect(database_url) as connection:
        other = add_tenant(connection, "other").tenant_id

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded, ends_at=at(600))
        before = traces(database_url)
        assert refusal(await set_end(client, made, at(900), tenant_id=other)) == (404, "not_found")
        assert refusal(await set_end(client, uuid4(), at(900))) == (404, "not_found")
        assert traces(database_url) == before

    as_client(database_url, seeded, way)


def test_what_is_released_keeps_its_end(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        end = at(600)
        made = create_allocation(database_url, seeded, ends_at=end)
        await provision(client.context, database_url, made)
        await release(client.context, seeded, made)
        before = traces(database_url)
        refused = await set_end(client, made, at(900), name="new")
        assert (refusal(refused), json.loads(refused.body)["state"]) == ((409, "invalid_state"), "releasing")
        assert traces(database_url) == before
        await force_cleanup(client.context, client.operation(uuid4()), ADMIN, made, "looked; nothing there")
        assert refusal(await set_end(client, made, end)) == (409, "invalid_state"), "its record is final"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_an_end_that_passed_while_the_request_waited_for_its_lock_stays(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded, ends_at=at(600))
        await provision(client.context, database_url, made)
        let_come(database_url, allocation_of(database_url, made)["ends_at"] - timedelta(seconds=4))
        end = allocation_of(database_url, made)["ends_at"]
        with connect(database_url) as rival:
            rival.execute("begin")
            rival.execute("select from nodes for no key update")
            extending = asyncio.ensure_future(set_end(client, made, at(600)))
            await until_waiting(database_url)
            await wait_past(end)
            rival.execute("rollback")
        refused = await extending
        assert refusal(refused) == (409, "invalid_state")
        assert "ended at" in json.loads(refused.body)["detail"]
        assert len(claims_of(database_url, made)) == 1
        assert await release_at_end(client.context, made)

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_a_new_end_that_passes_while_the_request_waits_is_refused(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made, end = create_allocation(database_url, seeded), soon()
        with connect(database_url) as rival:
            rival.execute("begin")
            rival.execute("select from nodes for no key update")
            shortening = asyncio.ensure_future(set_end(client, made, end))
            await until_waiting(database_url)
            await wait_past(end)
            rival.execute("rollback")
        assert refusal(await shortening) == (422, "window_invalid")
        assert len(claims_of(database_url, made)) == 1

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_the_notice_is_repeated_for_the_new_end_and_the_release_waits_for_it(database_url: str) -> None:
    seeded = seed_with_seats(database_url)
    notices = "select payload ->> 'ends_at' from outbox where event_type = 'reservation.ending' order by id"

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded, ends_at=at(30))
        await provision(client.context, database_url, made)
        for _ in range(2):
            await announce_ends(client.context, 10)
        assert len(rows_of(database_url, notices)) == 1
        await ends(client, made, at(600))
        await announce_ends(client.context, 10)
        assert len(rows_of(database_url, notices)) == 1, "the end is far"
        for seconds in (40, 4):
            body = await ends(client, made, at(seconds))
            for _ in range(2):
                await announce_ends(client.context, 10)
            assert rows_of(database_url, notices)[-1] == (body["ends_at"],)
        assert len(rows_of(database_url, notices)) == 3
        await wait_past(datetime.fromisoformat(body["ends_at"]))
        await release_ended(client.context, 10)
        assert allocation_of(database_url, made)["state"] == "releasing"

    as_client(database_url, seeded, way, limits=Limits(ending_notice_seconds=60))
    assert violations(database_url) == []


@pytest.mark.parametrize(
    ("plight", "code"),
    [
        ("update tenants set state = 'suspended'", "forbidden"),
        ("update tenants set depleted_at = clock_timestamp()", "balance_depleted"),
    ],
)
def test_a_tenant_that_may_not_create_gets_no_more_time_but_may_leave_earlier(
    database_url: str, plight: str, code: str
) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded, ends_at=at(600))
        with connect(database_url) as connection:
            connection.execute(plight.encode())
        before = traces(database_url)
        for end in (at(900), None):
            assert (await outcome(set_end(client, made, end)))[1] == code
        assert traces(database_url) == before
        await ends(client, made, at(300))

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_metering_and_balance_go_on_as_if_nothing_had_happened(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded, ends_at=at(600), gpus=2)
        await provision(client.context, database_url, made)
        await asyncio.to_thread(meter_all, database_url)
        intervals = rows_of(database_url, "select * from metering_intervals")
        balances = rows_of(database_url, "select * from balances")
        for end in (at(900), at(300)):
            await ends(client, made, end)
        await asyncio.to_thread(meter_all, database_url)
        assert rows_of(database_url, "select * from metering_intervals") == intervals
        assert rows_of(database_url, "select * from balances") == balances
        await release(client.context, seeded, made)
        await clean_up(client.context, database_url, made)
        (line,) = await asyncio.to_thread(meter_all, database_url)
        row = allocation_of(database_url, made)
        assert (line[2], line[5], line[6]) == (2, row["active_at"], row["releasing_at"])

    as_client(database_url, seeded, way)
    assert broken(database_url) == {}


def test_an_allocation_of_a_reservation_may_outlast_its_window(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        held = await client.held(client.slot(0), client.slot(1), ends_at=at(600))
        made = await consumed(client, held, sku=SLICE_SKU)
        window = row_of(database_url, "select ends_at from reservations where id = %s", held)
        later = at(3_600)
        await ends(client, made, later)
        assert row_of(database_url, "select ends_at from reservations where id = %s", held) == window
        assert claim_of(database_url, made)["during"].upper == later
        assert later - window["ends_at"] > timedelta(minutes=45)
        await provision(client.context, database_url, made)

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}
