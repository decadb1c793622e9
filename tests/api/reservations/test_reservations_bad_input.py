"""Bad input to reservations: windows, deadlines, bodies, holders and resources that cannot be change nothing."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.api.calling import Caller, Place, problem, refusal
from tests.api.reservations.reserving import DAY, HOLDER, UNKNOWN_ID, act, hold, seat, try_hold
from tests.support.public_api import PublicApi
from tests.support.public_api import module_place as place

__all__ = ["place"]


BAD_WINDOWS: list[tuple[dict[str, Any], str]] = [
    ({"starts_at": 2, "ends_at": 1}, "window_invalid"),
    ({"starts_at": 1, "ends_at": 1}, "window_invalid"),
    ({"ends_at": -1}, "window_invalid"),
    ({"starts_at": -2, "ends_at": -1}, "window_invalid"),
    ({"starts_at": 20_000}, "window_invalid"),
    ({"ends_at": 20_000}, "window_invalid"),
    ({"ttl_seconds": 0}, "ttl_out_of_range"),
    ({"ttl_seconds": -5}, "ttl_out_of_range"),
    ({"ttl_seconds": 3601}, "ttl_out_of_range"),
    ({"ttl_seconds": 10**18}, "slot_overflow"),
    ({"ttl_seconds": 10**400}, "slot_overflow"),
    ({"ends_at": "9999-12-31T23:59:59Z"}, "slot_overflow"),
    ({"ends_at": "9999-12-31T23:59:59-23:00"}, "slot_overflow"),
    ({"starts_at": "0001-01-01T00:00:00+23:00", "ends_at": "0001-01-02T00:00:00Z"}, "window_invalid"),
]


@pytest.mark.parametrize(("members", "code"), BAD_WINDOWS)
def test_windows_and_deadlines_that_cannot_be(
    api: PublicApi, tenant: Caller, members: dict[str, Any], code: str
) -> None:
    now = datetime.now(UTC)
    members = {
        name: (now + value * DAY).isoformat() if name.endswith("_at") and isinstance(value, int) else value
        for name, value in members.items()
    }
    key = uuid.uuid4().hex
    resource = seat(api)
    refused = try_hold(tenant, resource, key=key, **members)
    problem(refused, 422, code)
    assert try_hold(tenant, resource, key=key, **members).content == refused.content
    assert tenant.get("/reservations")["items"] == []
    assert tenant.get(f"/resources/{resource}")["state"] == "available"


BAD_BODIES: list[dict[str, Any]] = [
    {"resources": []},
    {"resources": [f"r{n}" for n in range(9_000)]},
    {"resources": ["seat"], "surprise": 1},
    {"resources": ["seat"], "sku": "x"},
    {"resources": None, "sku": None},
    {"resources": ["seat"], "holder_id": ""},
    {"resources": ["seat"], "holder_id": "x" * 201},
    {"resources": ["seat"], "holder_id": "nul\x00"},
    {"resources": ["seat"], "holder_id": 5},
    {"resources": ["seat"], "holder_id": None},
    {"resources": ["seat"], "ttl_seconds": "900"},
    {"resources": ["seat"], "ttl_seconds": True},
    {"resources": ["seat"], "ttl_seconds": 1.5},
    {"resources": ["seat"], "starts_at": "tomorrow"},
    {"resources": ["seat"], "starts_at": 1_800_000_000},
    {"resources": ["seat"], "starts_at": "2030-01-01T00:00:00"},
    {"resources": ["seat"], "starts_at": "2030-02-30T00:00:00Z"},
    {"resources": "seat"},
    {"resources": ["a seat"]},
    {"sku": "x", "gpus": 0, "region": "r"},
    {"sku": "x", "gpus": 1, "region": "r", "count": 1025},
    {"sku": "x", "gpus": 1},
    {},
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: ",".join(f"{k}={v!r}"[:30] for k, v in body.items()))
def test_bodies_that_do_not_fit(tenant: Caller, body: dict[str, Any]) -> None:
    refused = problem(tenant.call("POST", "/reservations", {"holder_id": HOLDER, **body}), 422, "invalid")
    assert not any("variant" in error["field"] for error in refused["errors"])
    assert not any("None" in error["message"] for error in refused["errors"]), "clients know no None"


@pytest.mark.parametrize("holder", ["ö", "a:b/c d", "🦀" * 200, "'; drop table reservations; --", "%s", " x "])
def test_a_holder_is_opaque(api: PublicApi, tenant: Caller, holder: str) -> None:
    made = hold(tenant, seat(api), holder_id=holder)
    problem(
        act(tenant, "confirm", made["reservation_id"], holder + "x" if len(holder) < 200 else "x"),
        409,
        "holder_mismatch",
    )
    assert act(tenant, "confirm", made["reservation_id"], holder).json()["holder_id"] == holder


@pytest.mark.parametrize(
    "name", ["nothing", "node:nothing", f"node:{UNKNOWN_ID}", f"slot:{UNKNOWN_ID}:0", "slot:x:0", "a:b", "..."]
)
def test_resources_that_are_not_there(tenant: Caller, name: str) -> None:
    assert problem(try_hold(tenant, name), 404, "resource_not_found")["resources"] == [name]
    problem(tenant.call("GET", f"/resources/{name}"), 404, "resource_not_found")


def test_a_slot_that_the_node_does_not_have(tenant: Caller, place: Place) -> None:
    assert refusal(try_hold(tenant, f"slot:{place.node['id']}:8")) == (404, "resource_not_found")
