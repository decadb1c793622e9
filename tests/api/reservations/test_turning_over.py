"""`POST /allocations` with a reservation, through the API: what it answers, what it refuses, and bad input."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest

from tests.api.calling import Caller, Place, fresh, new_tenant, one_gpu, problem
from tests.api.reservations.reserving import DAY, HOLDER, act, bring_to, make_overdue, moment, seat
from tests.support.public_api import PublicApi


def hold(tenant: Caller, place: Place, **members: Any) -> Any:
    """A hold of GPUs."""
    body = {"sku": place.sku, "gpus": 1, "region": place.region, "holder_id": HOLDER, **members}
    return tenant.make("/reservations", body)


def body_of(tenant: Caller, place: Place, reservation_id: str, **members: Any) -> dict[str, Any]:
    """The body of a create from a reservation."""
    keys = one_gpu(tenant, place)["ssh_key_ids"]
    return {"reservation_id": reservation_id, "holder_id": HOLDER, "ssh_key_ids": keys, **members}


def test_the_allocation_says_where_it_comes_from_and_when_it_ends(api: PublicApi, tenant: Caller, place: Place) -> None:
    ends_at = moment(DAY)
    held = hold(tenant, place, ends_at=ends_at)
    body = body_of(tenant, place, held["reservation_id"], name="mine", labels={"a": "b"})
    key = fresh("key")
    answers = [tenant.call("POST", "/allocations", body, key=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    assert answers[1].headers["idempotent-replayed"] == "true"
    made = answers[0].json()
    assert (made["status"], made["reservation_id"], made["ends_at"]) == (
        "requested",
        held["reservation_id"],
        held["ends_at"],
    )
    shown = tenant.get(f"/allocations/{made['allocation_id']}")
    assert (shown["reservation_id"], shown["ends_at"]) == (made["reservation_id"], made["ends_at"])
    assert (shown["name"], shown["labels"], shown["waits"]["for"]) == ("mine", {"a": "b"}, "worker")
    used = tenant.get(f"/reservations/{held['reservation_id']}")
    assert (used["status"], used["gpus_held"]) == ("consumed", 0)
    assert [name.split(":")[2] for name in used["resources"]] == [str(slot) for slot in shown["slots"]]
    problem(tenant.call("POST", "/allocations", {**body, "name": "other"}, key=key), 422, "operation_conflict")
    problem(tenant.call("POST", "/allocations", body), 409, "invalid_state")
    problem(act(tenant, "cancel", held["reservation_id"]), 409, "invalid_state")


def test_an_ordinary_allocation_comes_from_none(tenant: Caller, place: Place) -> None:
    made = tenant.make("/allocations", one_gpu(tenant, place))
    assert (made["reservation_id"], made["ends_at"]) == (None, None)
    shown = tenant.get(f"/allocations/{made['allocation_id']}")
    assert (shown["reservation_id"], shown["ends_at"]) == (None, None)


@pytest.mark.parametrize(
    ("state", "after"),
    [
        ("overdue", "expired"), ("cancelled", "cancelled"), ("expired", "expired"), ("consumed", "consumed"),
        ("released", "released"),
    ],
)  # fmt: skip
def test_what_holds_nothing_becomes_nothing(
    api: PublicApi, tenant: Caller, place: Place, state: str, after: str
) -> None:
    reservation_id = bring_to(api, tenant, f"slot:{place.node['id']}:0", state)
    body = body_of(tenant, place, reservation_id, sku=place.sku)
    key = fresh("key")
    refused = problem(tenant.call("POST", "/allocations", body, key=key), 409, "invalid_state")
    assert refused["state"] == after
    assert tenant.get(f"/reservations/{reservation_id}")["status"] == after
    assert tenant.call("POST", "/allocations", body, key=key).json() == refused, "refusals are remembered"
    assert tenant.get("/allocations")["items"] == []


def test_refusals_distinguish_situations(api: PublicApi, tenant: Caller, place: Place) -> None:
    held = hold(tenant, place)["reservation_id"]
    body = body_of(tenant, place, held)

    def refused(**members: Any) -> Any:
        return tenant.call("POST", "/allocations", {**body, **members})

    problem(refused(holder_id=f" {HOLDER}"), 409, "holder_mismatch")
    problem(refused(reservation_id=str(uuid.UUID(int=2**40))), 404, "reservation_not_found")
    problem(refused(ssh_key_ids=[str(uuid.uuid4())]), 422, "ssh_key_not_found")
    problem(refused(image="none"), 422, "image_unavailable")
    assert problem(refused(sku="other"), 409, "sku_unavailable")["reason"] == "not_reserved"
    stranger = new_tenant(api.admin)
    theirs = body_of(stranger, place, held)
    assert stranger.call("POST", "/allocations", theirs).json()["code"] in (
        "reservation_not_found",
        "reservation_retired",
    )
    later = hold(tenant, place, starts_at=moment(timedelta(hours=1)))
    early = problem(refused(reservation_id=later["reservation_id"]), 409, "invalid_state")
    assert early["starts_at"] == later["starts_at"]
    registered = tenant.make("/reservations", {"resources": [seat(api)], "holder_id": HOLDER})["reservation_id"]
    problem(refused(reservation_id=registered, sku=place.sku), 409, "resource_not_allocatable")
    named = tenant.make("/reservations", {"resources": [f"slot:{place.node['id']}:7"], "holder_id": HOLDER})
    missing = problem(refused(reservation_id=named["reservation_id"]), 422, "invalid")
    assert missing["errors"][0]["field"] == "sku"
    made = tenant.make("/allocations", {**body, "reservation_id": named["reservation_id"], "sku": place.sku})
    assert tenant.get(f"/allocations/{made['allocation_id']}")["slots"] == [7]
    make_overdue(api, held)
    problem(refused(), 409, "invalid_state")


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"gpus": 1}, "gpus"), ({"ends_at": moment(DAY)}, "ends_at"), ({"region": "x"}, "region"),
        ({"reservation_id": "no"}, "reservation_id"), ({"reservation_id": None}, "reservation_id"),
        ({"holder_id": ""}, "holder_id"), ({"holder_id": "x" * 201}, "holder_id"), ({"holder_id": 7}, "holder_id"),
        ({"ssh_key_ids": []}, "ssh_key_ids"), ({"sku": "\n"}, "sku"),
    ],
)  # fmt: skip
def test_bodies_that_do_not_fit_name_the_field(
    tenant: Caller, place: Place, members: dict[str, Any], field: str
) -> None:
    body = {**body_of(tenant, place, str(uuid.UUID(int=1))), **members}
    errors = problem(tenant.call("POST", "/allocations", body), 422, "invalid")["errors"]
    assert errors[0]["field"].split(".")[0] == field


def test_errors_of_an_ordinary_create_are_as_they_were(tenant: Caller, place: Place) -> None:
    body = one_gpu(tenant, place)
    del body["sku"]
    errors = problem(tenant.call("POST", "/allocations", body), 422, "invalid")["errors"]
    assert [error["field"] for error in errors] == ["sku"]
