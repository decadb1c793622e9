"""A request sees no reservation of another tenant, yet ends a rival's overdue hold and knows what is held (decision 0025)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors

from migrations.roles import Role
from orchestrator.database.row_security import tenants_setting
from orchestrator.operations.execution import Result
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import Problem
from orchestrator.reservations.commands.hold import hold_resources
from orchestrator.reservations.hold_requests import HoldRequest
from orchestrator.reservations.store import rows
from orchestrator.reservations.store.holding import Hold
from tests.api.calling import Caller, Place, fresh, new_tenant, one_gpu, problem
from tests.api.reservations.reserving import act, hold, make_overdue, moment, seat, try_hold
from tests.databases import as_role
from tests.placement.fleet import working
from tests.support.public_api import PublicApi


@pytest.fixture
def rival(api: PublicApi) -> Caller:
    """The other tenant."""
    return new_tenant(api.admin)


@contextmanager
def naming(api: PublicApi, *tenants: Caller) -> Iterator[psycopg.Connection[Any]]:
    """A transaction of the public API's role that names these tenants; it is rolled back."""
    url = as_role(_url(api), Role.PUBLIC_API)
    with psycopg.connect(url) as connection:
        named = tenants_setting(UUID(str(one.tenant_id)) for one in tenants)
        connection.execute("select set_config('berth.tenants', %s, true)", (named,))
        yield connection
        connection.rollback()


def _url(api: PublicApi) -> str:
    info = api.database.info
    return f"postgresql://{info.user}:{info.password}@{info.host}:{info.port}/{info.dbname}"


def _request(tenant_id: UUID, resource: str) -> HoldRequest:
    operation = Operation(tenant_id, fresh("key"), os.urandom(32), 3600.0)
    return HoldRequest(Hold(operation, tenant_id, "holder", None, None, 900, None, None, uuid4()), (resource,))


def _state(api: PublicApi, reservation_id: str) -> Any:
    row = api.database.execute("select state from reservations where id = %s", (reservation_id,)).fetchone()
    assert row is not None
    return row[0]


def test_what_a_request_learns_of_a_rivals_reservation(api: PublicApi, tenant: Caller, rival: Caller) -> None:
    theirs = hold(rival, seat(api))["reservation_id"]
    with naming(api, tenant) as connection:
        assert connection.execute("select from reservations where id = %s", (theirs,)).fetchall() == []
        found = connection.execute("select * from reservation_states where id = %s", (theirs,))
        assert found.description is not None
        assert [column.name for column in found.description] == ["id", "position", "state", "expires_at"]
        assert [row[2] for row in found.fetchall()] == ["hold"]
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("update reservation_states set state = 'confirmed' where id = %s", (theirs,))


def test_only_holds_past_their_deadline_are_locked_or_expired(api: PublicApi, tenant: Caller, rival: Caller) -> None:
    early, late = (hold(rival, seat(api))["reservation_id"] for _ in range(2))
    confirmed = hold(rival, seat(api))["reservation_id"]
    assert act(rival, "confirm", confirmed).status_code == 200
    make_overdue(api, late)
    ids = [early, late, confirmed]
    with naming(api, tenant) as connection:
        assert connection.execute("select lock_overdue_holds(%s, false)", (ids,)).fetchone() == (1,)
        free = "select id::text from reservations where id = any (%s) for update skip locked"
        assert {id_ for (id_,) in api.database.execute(free, (ids,))} == {early, confirmed}
        with psycopg.connect(as_role(_url(api), Role.PUBLIC_API)) as other:
            assert other.execute("select lock_overdue_holds(%s, false)", (ids,)).fetchone() == (0,)
        # A clock of the caller's own is not believed.
        expired = "select tenants::text[] from expire_holds(%s, clock_timestamp() + interval '1 year', 60)"
        assert connection.execute(expired, (ids,)).fetchone() == ([str(rival.tenant_id)],)
        connection.commit()
    assert [_state(api, id_) for id_ in ids] == ["hold", "expired", "confirmed"]


@pytest.mark.parametrize("way", ["hold", "create", "extend"])
def test_each_command_ends_a_rivals_overdue_hold(
    api: PublicApi, tenant: Caller, rival: Caller, place: Place, way: str
) -> None:
    resource = f"slot:{place.node['id']}:0"
    wanted = {"sku": place.sku, "gpus": 8, "region": place.region}
    if way == "extend":
        made = tenant.make("/allocations", one_gpu(tenant, place, ends_at=moment(timedelta(hours=1))))
        late = hold(rival, f"node:{place.node['id']}", starts_at=moment(timedelta(hours=1, minutes=1)))
    else:
        late = hold(rival, resource)
    make_overdue(api, late["reservation_id"])
    if way == "hold":
        hold(tenant, resource)
    elif way == "create":
        tenant.make("/allocations", one_gpu(tenant, place, **wanted))
    else:
        changed = tenant.call("PATCH", f"/allocations/{made['allocation_id']}", {"ends_at": moment(timedelta(hours=3))})
        assert changed.status_code == 200, changed.text
    assert _state(api, late["reservation_id"]) == "expired"
    events = api.database.execute(
        "select count(*) from outbox where subject = %s and event_type = 'reservation.expired'"
        " union all select count(*) from log where subject = %s and event_type = 'reservation.expired'",
        (f"reservations/{late['reservation_id']}",) * 2,
    ).fetchall()
    assert sum(int(str(count)) for (count,) in events) == 1


def test_a_batch_of_two_tenants_holds_for_each_its_own_and_ends_what_is_overdue(
    api: PublicApi, tenant: Caller, rival: Caller
) -> None:
    third = new_tenant(api.admin)
    free, late_one, taken = seat(api), seat(api), seat(api)
    late, theirs = hold(third, late_one)["reservation_id"], hold(third, taken)["reservation_id"]
    make_overdue(api, late)
    wanted = [(tenant, free), (rival, late_one), (rival, taken)]
    requests = [_request(UUID(str(one.tenant_id)), resource) for one, resource in wanted]

    async def send() -> list[Result]:
        async with working(as_role(_url(api), Role.PUBLIC_API)) as (context, catalogue):
            found = await hold_resources(context, catalogue, requests)
            return [one if isinstance(one, Answer | Problem) else await one.retry_alone() for one in found]

    results = asyncio.run(send())
    assert [one.status for one in results] == [201, 201, 409]
    for own, result in ((tenant, results[0]), (rival, results[1])):
        made = json.loads(str(result.body))["reservation_id"] if isinstance(result, Answer) else None
        with naming(api, own) as connection:
            seen = connection.execute("select id::text, tenant_id::text from reservations").fetchall()
            assert seen == [(made, own.tenant_id)]
    assert [_state(api, id_) for id_ in (late, theirs)] == ["expired", "hold"]


def test_a_hold_that_is_not_overdue_is_in_the_way(api: PublicApi, tenant: Caller, rival: Caller) -> None:
    resource = seat(api)
    theirs = hold(rival, resource)["reservation_id"]
    refused = problem(try_hold(tenant, resource), 409, "resource_busy")
    assert theirs not in str(refused)
    for state in ("reserved", "confirmed"):
        shown = tenant.get(f"/resources/{resource}")
        assert (shown["state"], shown["reservation_id"]) == (state, None)
        assert rival.get(f"/resources/{resource}")["reservation_id"] == theirs
        act(rival, "confirm", theirs)


def test_a_list_whose_filter_was_removed_returns_only_the_callers_reservations(
    api: PublicApi, tenant: Caller, rival: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, theirs = hold(tenant, seat(api))["reservation_id"], hold(rival, seat(api))["reservation_id"]
    guard = "where r.id = :id and (cast(:tenant_id as uuid) is null or r.tenant_id = :tenant_id)"
    assert guard in rows._READ, "this test removes the filter of the statement that runs"
    open_ = "where r.id = :id and (cast(:tenant_id as uuid) is null or true)"
    monkeypatch.setattr(rows, "_READ", rows._READ.replace(guard, open_))
    tenant_id, rival_id = UUID(str(tenant.tenant_id)), UUID(str(rival.tenant_id))

    async def reads() -> list[list[bool]]:
        async with working(as_role(_url(api), Role.PUBLIC_API)) as (context, _):
            found = []
            for database in (
                context.database.for_tenants(tenant_id), context.database.for_tenants(tenant_id, rival_id),
                context.database.for_platform(), context.database,
            ):  # fmt: skip
                async with database.reading() as reading:
                    bodies = [await rows.read_reservation(reading, UUID(id_), tenant_id) for id_ in (own, theirs)]
                    found.append([body is not None for body in bodies])
            return found

    assert asyncio.run(reads()) == [[True, False], [True, True], [True, True], [False, False]]
