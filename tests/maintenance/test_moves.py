"""A commit with `reservations: move` moves claims of reservations of a SKU to equal units, all of them or none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.calling import Caller, Place
from tests.maintenance.windows import CLAIMS, body, new_neighbour, reserve, rows
from tests.support.public_api import PublicApi


def commit(api: PublicApi, place: Place, **members: Any) -> Any:
    return api.admin.call("POST", "/admin/maintenance", body(place, **{"reservations": "move", **members}))


def test_a_reservation_moves_and_the_window_claims_its_units(api: PublicApi, tenant: Caller, place: Place) -> None:
    held = reserve(tenant, place)["reservation_id"]
    ((_, fence),) = rows(api, CLAIMS, held)
    neighbour = new_neighbour(api, place)
    planned = api.admin.get("/admin/maintenance/plan", **{k: v for k, v in body(place).items() if k != "reason"})
    assert [one["resolution"] for one in planned["conflicts"]] == ["move"]
    made = commit(api, place)
    assert (made.status_code, made.json()["planned"]) == (201, []), made.text
    ((node, moved),) = rows(api, CLAIMS, held)
    assert node == neighbour
    assert int(str(moved)) > int(str(fence))
    ((tenant_id, payload),) = rows(
        api, "select tenant_id::text, payload from outbox where event_type = 'reservation.moved' and subject = %s",
        f"reservations/{held}",
    )  # fmt: skip
    assert isinstance(payload, dict)
    assert (tenant_id, payload["reason"]) == (tenant.tenant_id, "maintenance: new firmware")
    units = "select sum(upper(part) - lower(part)) from claims, unnest(units) part where owner_id = %s"
    assert rows(api, units, made.json()["window_id"]) == [(8,)]


def test_a_claim_moves_to_no_other_slot_of_the_window(api: PublicApi, tenant: Caller, place: Place) -> None:
    held = reserve(tenant, place, 1)["reservation_id"]
    neighbour = new_neighbour(api, place)
    api.database.execute("update nodes set placement_rank = 2147483647 where id = %s", (neighbour,))
    assert commit(api, place).status_code == 201
    assert [node for node, _ in rows(api, CLAIMS, held)] == [neighbour]


def test_two_reservations_get_different_units(api: PublicApi, tenant: Caller, place: Place) -> None:
    held = [reserve(tenant, place, 1)["reservation_id"] for _ in range(8)]
    neighbour = new_neighbour(api, place)
    assert commit(api, place).status_code == 201
    assert {node for one in held for node, _ in rows(api, CLAIMS, one)} == {neighbour}


@pytest.mark.parametrize("policy", ["refuse", "move"])
def test_without_room_or_by_policy_nothing_moves(api: PublicApi, tenant: Caller, place: Place, policy: str) -> None:
    held = [reserve(tenant, place, 1)["reservation_id"] for _ in range(2)]
    if policy == "refuse":
        new_neighbour(api, place)
    refused = commit(api, place, reservations=policy)
    assert (refused.status_code, refused.json()["code"]) == (409, "maintenance_conflict")
    named = {one["owner"]: one["resolution"] for one in refused.json()["conflicts"]}
    assert named == {f"reservations/{one}": "refuse" for one in held}
    assert {node for one in held for node, _ in rows(api, CLAIMS, one)} == {place.node["id"]}


def test_an_overdue_hold_refuses(api: PublicApi, tenant: Caller, place: Place) -> None:
    held = reserve(tenant, place)["reservation_id"]
    new_neighbour(api, place)
    api.database.execute(
        "update reservations set hold_until = held_at, expires_at = held_at, waits_until = held_at where id = %s",
        (held,),
    )
    refused = commit(api, place)
    assert [one["state"] for one in refused.json()["conflicts"]] == ["overdue"]
