"""Reservations through the API: every row of the tables of docs/reference/reservations.md, every refusal, and lists."""

from __future__ import annotations

import uuid

import pytest

from tests.api.calling import Caller, Place, fresh, new_tenant, problem
from tests.api.reservations.reserving import HOLDER, act, bring_to, hold, seat
from tests.support.public_api import PublicApi
from tests.support.public_api import module_place as place

__all__ = ["place"]


CONFIRMS = [
    ("hold", 200, "ok", "confirmed"),
    ("overdue", 409, "invalid_state", "expired"),
    ("confirmed", 200, "noop", "confirmed"),
    ("cancelled", 409, "invalid_state", "cancelled"),
    ("expired", 409, "invalid_state", "expired"),
    ("consumed", 409, "invalid_state", "consumed"),
    ("released", 409, "invalid_state", "released"),
]
CANCELS = [
    ("hold", 200, "ok", "cancelled"),
    ("overdue", 200, "noop", "expired"),
    ("confirmed", 200, "ok", "cancelled"),
    ("cancelled", 200, "noop", "cancelled"),
    ("expired", 200, "noop", "expired"),
    ("consumed", 409, "invalid_state", "consumed"),
    ("released", 409, "invalid_state", "released"),
]


@pytest.mark.parametrize(
    ("verb", "state", "status", "word", "after"),
    [("confirm", *row) for row in CONFIRMS] + [("cancel", *row) for row in CANCELS],
)
def test_every_row_of_the_table(
    api: PublicApi, tenant: Caller, verb: str, state: str, status: int, word: str, after: str
) -> None:
    resource = seat(api)
    reservation = bring_to(api, tenant, resource, state)
    key = uuid.uuid4().hex
    answer = act(tenant, verb, reservation, key=key)
    assert answer.status_code == status, answer.text
    told = answer.json()
    if status == 200:
        assert (told["result"], told["status"]) == (word, after)
    else:
        assert problem(answer, status, word)["state"] == after
    again = act(tenant, verb, reservation, key=key)
    assert again.content == answer.content, "stored with its key, refusals too"
    assert again.headers["idempotent-replayed"] == "true"
    shown = tenant.get(f"/reservations/{reservation}")
    assert shown["status"] == after
    live = after in ("hold", "confirmed")
    assert (shown["waits"] is not None) == live
    assert (shown["retire_after"] is not None) == (not live)
    assert shown["expires_at"] is None or after in ("hold", "expired")
    assert tenant.get(f"/resources/{resource}")["state"] == ("confirmed" if after == "confirmed" else "available")


@pytest.mark.parametrize("verb", ["confirm", "cancel"])
def test_four_refusals_are_four_answers(api: PublicApi, tenant: Caller, verb: str) -> None:
    mine = hold(tenant, seat(api))["reservation_id"]
    problem(act(tenant, verb, mine, holder=HOLDER + " "), 409, "holder_mismatch")
    problem(act(tenant, verb, str(uuid.UUID(int=2**62))), 404, "reservation_not_found")
    problem(act(tenant, verb, str(uuid.UUID(int=(7 << 64) | 1))), 404, "reservation_not_found")
    problem(act(tenant, verb, str(uuid.uuid4())), 404, "reservation_not_found")
    problem(act(new_tenant(api.admin), verb, mine), 404, "reservation_not_found")
    ended = bring_to(api, tenant, seat(api), "consumed")
    problem(act(tenant, verb, ended), 409, "invalid_state")
    assert tenant.get(f"/reservations/{mine}")["status"] == "hold"


def test_lists_are_the_tenants_own(api: PublicApi, tenant: Caller) -> None:
    mine = [hold(tenant, seat(api))["reservation_id"] for _ in range(5)]
    hold(new_tenant(api.admin), seat(api))
    act(tenant, "confirm", mine[2])
    assert [item["reservation_id"] for item in tenant.every("/reservations", 2)] == mine
    assert [item["reservation_id"] for item in tenant.every("/reservations", 5, state="confirmed")] == [mine[2]]
    problem(api.admin.call("GET", "/reservations"), 403, "forbidden")
    assert len(api.admin.every("/reservations", 500, tenant_id=tenant.tenant_id)) == 5


def test_resources_are_listed_by_kind(api: PublicApi, tenant: Caller, place: Place) -> None:
    resource = seat(api)
    listed = tenant.every("/resources", 7)
    ids = [item["id"] for item in listed]
    assert len(ids) == len(set(ids))
    assert {f"node:{place.node['id']}", f"slot:{place.node['id']}:0", resource} <= set(ids)
    for kind in ("node", "slot", "registered"):
        assert tenant.every("/resources", 500, kind=kind) == [item for item in listed if item["kind"] == kind]


def test_a_resource_is_registered_once(api: PublicApi, tenant: Caller) -> None:
    resource = seat(api)
    assert problem(api.admin.call("POST", "/admin/resources", {"id": resource}), 409, "already_exists")
    problem(tenant.call("POST", "/admin/resources", {"id": fresh("seat")}), 403, "forbidden")
    for bad in ("", "a b", "node:x", "x" * 129, "-x", "ü"):
        problem(api.admin.call("POST", "/admin/resources", {"id": bad}), 422, "invalid")


def test_versions_come_from_the_log(api: PublicApi, tenant: Caller) -> None:
    made = hold(tenant, seat(api))["reservation_id"]
    act(tenant, "cancel", made)
    api.database.execute("select log_advance(1000)")
    shown = tenant.get(f"/reservations/{made}")
    assert 0 < shown["created_version"] < shown["released_version"]
    assert tenant.get("/reservations")["items"] == [shown]
