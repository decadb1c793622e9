"""Registered resources go out of service and come back: on the record, and without touching their holders."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.api.calling import Caller, fresh, problem
from tests.api.reservations.reserving import DAY, act, hold, moment, seat, try_hold
from tests.support.public_api import PublicApi
from tests.support.public_api import module_tenant as tenant
from tests.support.waiting import wait_for

__all__ = ["tenant"]


def take_out(api: PublicApi, resource: str, reason: str = "its dongle is lost", **more: Any) -> Any:
    return api.admin.call("POST", f"/admin/resources/{resource}/out-of-service", {"reason": reason}, **more)


def put_back(api: PublicApi, resource: str, **more: Any) -> Any:
    return api.admin.call("POST", f"/admin/resources/{resource}/in-service", **more)


def told(api: PublicApi, resource: str) -> list[tuple[str, Any]]:
    """The events after its registration: types and reasons; they are for operators only."""
    rows = api.database.execute(
        "select event_type, payload ->> 'reason', tenant_id from outbox where subject = %s order by id offset 1",
        (f"resources/{resource}",),
    ).fetchall()
    assert {row[2] for row in rows} <= {None}
    return [(str(row[0]), row[1]) for row in rows]


def test_no_create_gets_what_is_out_of_service(api: PublicApi, tenant: Caller) -> None:
    resource, other = seat(api), seat(api)
    before = tenant.get(f"/resources/{resource}")
    shown = take_out(api, resource)
    assert shown.status_code == 200, shown.text
    assert (shown.json()["state"], shown.json()["reason"]) == ("out_of_service", "its dongle is lost")
    assert shown.json()["row_version"] > before["row_version"]
    for window in ({}, {"starts_at": moment(3 * DAY)}):
        refused = problem(try_hold(tenant, other, resource, **window), 409, "resource_out_of_service")
        assert (refused["reason"], refused["resources"]) == ("its dongle is lost", [resource])
    assert tenant.get(f"/resources/{other}")["state"] == "available", "a bundle is all or nothing"
    back = put_back(api, resource).json()
    assert (back["state"], back["reason"]) == ("available", None)
    assert back["row_version"] > shown.json()["row_version"]
    assert hold(tenant, resource)["status"] == "hold"
    assert told(api, resource) == [("resource.out_of_service", "its dongle is lost"), ("resource.in_service", None)]


def test_the_holder_keeps_it(api: PublicApi, tenant: Caller) -> None:
    resource = seat(api)
    now = hold(tenant, resource, ends_at=moment(DAY))["reservation_id"]
    later = hold(tenant, resource, starts_at=moment(2 * DAY))["reservation_id"]
    assert take_out(api, resource).json()["state"] == "reserved", "claims go before everything"
    assert act(tenant, "confirm", now).json()["status"] == act(tenant, "confirm", later).json()["status"] == "confirmed"
    problem(try_hold(tenant, resource, starts_at=moment(DAY), ends_at=moment(2 * DAY)), 409, "resource_out_of_service")
    assert act(tenant, "cancel", now).json()["status"] == "cancelled"
    shown = tenant.get(f"/resources/{resource}")
    assert (shown["state"], shown["reason"]) == ("out_of_service", "its dongle is lost")


def test_a_repetition_changes_and_announces_nothing_but_is_audited(api: PublicApi) -> None:
    resource, key = seat(api), uuid.uuid4().hex
    first = take_out(api, resource, key=key)
    assert take_out(api, resource, key=key).content == first.content
    assert take_out(api, resource).json() == first.json()
    problem(take_out(api, resource, "another reason", key=key), 422, "operation_conflict")
    renamed = take_out(api, resource, "sold")
    assert renamed.json()["reason"] == "sold"
    back = put_back(api, resource)
    assert put_back(api, resource).json() == back.json()
    assert told(api, resource) == [
        ("resource.out_of_service", "its dongle is lost"), ("resource.out_of_service", "sold"), ("resource.in_service", None),
    ]  # fmt: skip
    audited = api.admin.every("/admin/audit", 10, subject=f"resources/{resource}", outcome="ok")[1:]
    assert [(entry["action"], entry["detail"]["from"], entry["detail"].get("reason")) for entry in audited] == [
        ("resource.out_of_service", "in_service", "its dongle is lost"),
        ("resource.out_of_service", "out_of_service", "its dongle is lost"),
        ("resource.out_of_service", "out_of_service", "sold"),
        ("resource.in_service", "out_of_service", None),
        ("resource.in_service", "in_service", None),
    ]


def test_what_is_not_registered_has_no_service(api: PublicApi, tenant: Caller) -> None:
    missing = problem(take_out(api, fresh("nothing")), 404, "resource_not_found")
    assert len(missing["resources"]) == 1
    problem(put_back(api, fresh("nothing")), 404, "resource_not_found")
    for name in (f"node:{uuid.uuid4()}", f"slot:{uuid.uuid4()}:0", "-", "a" * 129):
        problem(take_out(api, name), 422, "invalid")
        problem(put_back(api, name), 422, "invalid")
    resource = seat(api)
    for reason in ("", " \t", "nul\x00", "x" * 1_001):
        problem(take_out(api, resource, reason), 422, "invalid")
    problem(api.admin.call("POST", f"/admin/resources/{resource}/out-of-service"), 422, "invalid")
    problem(tenant.call("POST", f"/admin/resources/{resource}/in-service"), 403, "forbidden")
    assert told(api, resource) == []


def test_a_hold_that_waits_for_the_resource_sees_what_became_of_it(api: PublicApi, tenant: Caller) -> None:
    """Judged under its lock: what it saw before it waited does not count."""
    resource = seat(api)
    waits = """select exists (select from pg_locks where not granted and locktype = 'transactionid'
                              and transactionid = pg_current_xact_id()::xid)"""
    with ThreadPoolExecutor(1) as pool:
        with api.database.transaction():
            api.database.execute(
                "update resources set state = 'out_of_service', reason = 'lent' where id = %s", (resource,)
            )
            waiting = pool.submit(try_hold, tenant, resource)
            wait_for(lambda: waiting.done() or api.database.execute(waits).fetchone() == (True,), "the hold to wait")
            assert not waiting.done(), "it did not look under the lock"
        assert problem(waiting.result(), 409, "resource_out_of_service")["reason"] == "lent"
