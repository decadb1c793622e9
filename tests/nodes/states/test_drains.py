"""A drain notifies tenants and moves reservations; its last claim, an operator or its deadline ends the wait."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator, FormatChecker  # type: ignore[import-untyped]

from orchestrator.log.event_types import EVENT_KINDS
from orchestrator.log.events import EventType
from orchestrator.maintenance.rules import CONFLICTS_MAX
from orchestrator.nodes.commands.drains import release_for_drain
from orchestrator.nodes.drains import rules
from orchestrator.nodes.drains.rules import REMAINING_MAX
from orchestrator.verification.p9_complete_waits import check_complete_waits
from orchestrator.verification.verdict import Bounds
from tests.api.calling import Caller, Place, at_once, one_gpu, problem, rent
from tests.maintenance.windows import CLAIMS, at, body, new_neighbour, reserve, rows, slot_of
from tests.nodes.states.draining import (
    END,
    TO_OPERATORS,
    TO_TENANTS,
    call,
    drain,
    pass_deadline,
    sweep,
    to_operators,
    to_release,
    to_tenant,
)
from tests.support.paused_commits import in_order
from tests.support.public_api import PublicApi

_MANY = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, fence)
select n.id, t.id, 'reservation', gen_random_uuid(), int8multirange(int8range(n.unit_base + 7, n.unit_base + 8)),
       tstzrange(now() + make_interval(days => 9, hours => i), now() + make_interval(days => 9, hours => i + 1)), 1
from nodes n cross join (select id from tenants limit 1) t cross join generate_series(1, %(hours)s) i where n.id = %(node)s
"""


def test_each_tenant_on_the_node_is_notified_of_the_deadline(api: PublicApi, tenant: Caller, place: Place) -> None:
    allocation, deadline = rent(tenant, place)["allocation_id"], at(5)
    drained = drain(api, place, deadline=deadline, reason="new hall")
    shown = drained["drain"]
    assert (drained["state"], drained["drained"], shown["at_deadline"]) == ("draining", False, "stay")
    assert (shown["waits_for"], shown["waits_until"], shown["reason"]) == ("claims", shown["deadline"], "new hall")
    assert datetime.fromisoformat(shown["deadline"]) == datetime.fromisoformat(deadline)
    assert [(one["owner"], one["tenant_id"]) for one in shown["remaining"]] == [
        (f"allocations/{allocation}", tenant.tenant_id)
    ]
    ((kind, payload, tenant_id),) = to_tenant(api, allocation)
    assert (kind, tenant_id, payload["at_deadline"]) == ("allocation.node_draining", tenant.tenant_id, "stay")
    assert (payload["deadline"], payload["reason"]) == (shown["deadline"].replace("Z", "+00:00"), "new hall")
    assert api.admin.get(f"/admin/nodes/{place.node['id']}")["drain"] == shown
    listed = next(one for one in api.admin.every("/admin/nodes", 100) if one["id"] == place.node["id"])
    assert "drain" not in listed


def test_the_same_order_changes_nothing_and_another_one_notifies_again(
    api: PublicApi, tenant: Caller, place: Place
) -> None:
    allocation, deadline = rent(tenant, place)["allocation_id"], at(5)
    first = drain(api, place, deadline=deadline)
    assert drain(api, place, deadline=deadline) == first
    assert drain(api, place) == first, "without an order nothing changes"
    later = drain(api, place, deadline=at(9))["drain"]
    assert (later["begun_at"], later["deadline"] > first["drain"]["deadline"]) == (first["drain"]["begun_at"], True)
    assert len(to_tenant(api, allocation)) == 2
    assert to_operators(api, place) == ["node.draining"] * 2


def test_the_same_order_changes_nothing_after_its_deadline_too(api: PublicApi, tenant: Caller, place: Place) -> None:
    allocation = rent(tenant, place)["allocation_id"]
    drain(api, place, deadline=at(5), reason="new hall")
    pass_deadline(api, place)
    for is_announced in (False, True):
        shown = api.admin.get(f"/admin/nodes/{place.node['id']}")
        assert (shown["drain"]["overdue_at"] is not None) is is_announced
        assert drain(api, place, deadline=shown["drain"]["deadline"], reason="new hall") == shown
        other = {"deadline": shown["drain"]["deadline"], "reason": "another"}
        problem(api.admin.call("POST", f"/admin/nodes/{place.node['id']}/drain", other), 422, "invalid")
        assert sweep(api, place) == (None if is_announced else "overdue")
    assert len(to_tenant(api, allocation)) == 1


def test_a_drain_reaches_what_lies_behind_many_claims(api: PublicApi, tenant: Caller, place: Place) -> None:
    """Each allocation is notified, and reservations are moved, however many claims are older."""
    hours = CONFLICTS_MAX + 2
    api.database.execute("set session_replication_role = replica")
    api.database.execute(_MANY, {"node": place.node["id"], "hours": hours})
    api.database.execute("reset session_replication_role")
    try:
        allocation = rent(tenant, place)["allocation_id"]
        moved = reserve(tenant, place, 1)["reservation_id"]
        new_neighbour(api, place)
        shown = drain(api, place, deadline=at(5), at_deadline="release")["drain"]
        assert [kind for kind, _, _ in to_tenant(api, allocation)] == TO_TENANTS[:1]
        assert rows(api, CLAIMS, moved)[0][0] != place.node["id"]
        assert (len(shown["remaining"]), shown["remaining_count"]) == (REMAINING_MAX, hours + 1)
        api.admin.make(f"/admin/nodes/{place.node['id']}/uncordon")
        assert [kind for kind, _, _ in to_tenant(api, allocation)] == TO_TENANTS
    finally:
        rows(api, "delete from claims where node_id = %s and fence = 1 returning 1", place.node["id"])


def test_one_drain_moves_a_bounded_number(
    api: PublicApi, tenant: Caller, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another order moves the next ones."""
    monkeypatch.setattr(rules, "MOVES_MAX", 1)
    slots = {"resources": [slot_of(place, 7)], "starts_at": at(9), "ends_at": at(11), "ttl_seconds": 600}
    tenant.make("/reservations", {"holder_id": "h", **slots})
    for _ in range(2):
        reserve(tenant, place, 1)
    new_neighbour(api, place)
    for hours, left in ((5, 2), (6, 1), (7, 1)):
        assert drain(api, place, deadline=at(hours))["drain"]["remaining_count"] == left


def test_the_last_claim_ends_the_wait(api: PublicApi, tenant: Caller, place: Place) -> None:
    allocation = rent(tenant, place)["allocation_id"]
    drain(api, place, deadline=at(5))
    assert sweep(api, place) is None
    rows(api, END, allocation)
    assert sweep(api, place) == "drained"
    assert sweep(api, place) is None
    shown = api.admin.get(f"/admin/nodes/{place.node['id']}")
    assert (shown["state"], shown["drained"], shown["drain"]["waits_for"]) == ("draining", True, None)
    assert shown["drain"]["drained_at"] is not None
    assert to_operators(api, place) == ["node.draining", "node.drained"]


def test_an_overdue_drain_is_announced_once_and_ends_nothing(api: PublicApi, tenant: Caller, place: Place) -> None:
    allocation = rent(tenant, place)["allocation_id"]
    drain(api, place, deadline=at(5))
    pass_deadline(api, place)
    assert sweep(api, place) == "overdue"
    assert sweep(api, place) is None
    assert allocation not in [str(one) for _, one in to_release(api)]
    assert call(api, release_for_drain, UUID(place.node["id"]), UUID(allocation)) is False
    assert tenant.get(f"/allocations/{allocation}")["status"] == "requested"
    shown = api.admin.get(f"/admin/nodes/{place.node['id']}")["drain"]
    assert (shown["overdue_at"] is None, shown["waits_for"], shown["waits_until"]) == (False, "claims", None)
    assert to_operators(api, place) == ["node.draining", "node.drain_overdue"]
    again = drain(api, place, deadline=at(7))["drain"]
    assert (again["overdue_at"], again["waits_until"]) == (None, again["deadline"])


def test_allocations_are_released_at_the_deadline_if_that_was_ordered(
    api: PublicApi, tenant: Caller, place: Place
) -> None:
    node, allocation = UUID(place.node["id"]), rent(tenant, place)["allocation_id"]
    drain(api, place, deadline=at(5), at_deadline="release")
    assert to_tenant(api, allocation)[0][1]["at_deadline"] == "release"
    assert call(api, release_for_drain, node, UUID(allocation)) is False, "the deadline has not come"
    pass_deadline(api, place)
    assert call(api, release_for_drain, node, UUID(allocation)) is False, "it was not announced"
    assert sweep(api, place) == "overdue"
    assert (node, UUID(allocation)) in to_release(api)
    assert call(api, release_for_drain, node, UUID(allocation)) is True
    assert call(api, release_for_drain, node, UUID(allocation)) is False
    assert tenant.get(f"/allocations/{allocation}")["status"] == "releasing"
    ((payload,),) = rows(
        api, "select payload from outbox where event_type = 'provisioning.releasing.requested' and subject = %s",
        f"allocations/{allocation}",
    )  # fmt: skip
    assert payload["reason"] == "node_drain"
    assert (node, UUID(allocation)) not in to_release(api)


def test_an_operator_ends_a_drain_and_tenants_are_notified(api: PublicApi, tenant: Caller, place: Place) -> None:
    kept, left = (rent(tenant, place)["allocation_id"] for _ in range(2))
    drain(api, place, deadline=at(5), at_deadline="release")
    tenant.make(f"/allocations/{left}/release", {})
    pass_deadline(api, place)
    sweep(api, place)
    back = api.admin.make(f"/admin/nodes/{place.node['id']}/uncordon")
    assert (back["state"], back["drain"]) == ("active", None)
    assert [kind for kind, _, _ in to_tenant(api, kept)] == TO_TENANTS
    assert [kind for kind, _, _ in to_tenant(api, left)] == TO_TENANTS[:1]
    assert call(api, release_for_drain, UUID(place.node["id"]), UUID(kept)) is False
    assert rent(tenant, place)["allocation_id"]
    assert rows(api, "select from node_drains where node_id = %s", place.node["id"]) == []


def test_reservations_move_and_those_without_a_place_remain(api: PublicApi, tenant: Caller, place: Place) -> None:
    moved = reserve(tenant, place, 8)["reservation_id"]
    new_neighbour(api, place)
    left = tenant.make(
        "/reservations",
        {
            "holder_id": "h",
            "resources": [slot_of(place, 3)],
            "starts_at": at(20),
            "ends_at": at(21),
            "ttl_seconds": 600,
        },
    )["reservation_id"]
    ((_, fence),) = rows(api, CLAIMS, moved)
    remaining = drain(api, place, deadline=at(5), reason="new hall")["drain"]["remaining"]
    assert [(one["owner"], one["state"]) for one in remaining] == [(f"reservations/{left}", "hold")]
    ((node, newer),) = rows(api, CLAIMS, moved)
    assert (node != place.node["id"], int(newer) > int(fence)) == (True, True)
    ((payload,),) = rows(
        api,
        "select payload from outbox where event_type = 'reservation.moved' and subject = %s",
        f"reservations/{moved}",
    )
    assert payload["reason"] == "the node is draining: new hall"


def test_a_reservation_without_room_elsewhere_refuses_no_drain(api: PublicApi, tenant: Caller, place: Place) -> None:
    held = reserve(tenant, place, 8)["reservation_id"]
    assert [one["owner"] for one in drain(api, place)["drain"]["remaining"]] == [f"reservations/{held}"]


@pytest.mark.parametrize(
    "order",
    [{"deadline": -1}, {"deadline": 24 * 367}, {"at_deadline": "release"}, {"at_deadline": "kill"}, {"reason": ""}],
    ids=str,
)
def test_an_impossible_order_changes_nothing(api: PublicApi, tenant: Caller, place: Place, order: Any) -> None:
    if "deadline" in order:
        order = {"deadline": at(order["deadline"])}
    allocation = rent(tenant, place)["allocation_id"]
    problem(api.admin.call("POST", f"/admin/nodes/{place.node['id']}/drain", order), 422, "invalid")
    assert api.admin.get(f"/admin/nodes/{place.node['id']}")["state"] == "active"
    assert to_tenant(api, allocation) == []


def test_the_role_fleet_orders_no_release(api: PublicApi, tenant: Caller, place: Place) -> None:
    key = api.admin.make("/admin/api-keys", {"name": "fleet", "role": "fleet"})["key"]
    fleet = Caller(api.admin.http, key)
    path, order = f"/admin/nodes/{place.node['id']}/drain", {"deadline": at(5), "at_deadline": "release"}
    assert problem(fleet.call("POST", path, order), 403, "role_required")["roles_required"] == ["admin"]
    assert api.admin.get(f"/admin/nodes/{place.node['id']}")["state"] == "active"
    assert fleet.make(path, {"deadline": at(5)})["state"] == "draining"


def test_a_retired_node_has_no_drain(api: PublicApi, place: Place) -> None:
    drain(api, place, deadline=at(5))
    api.admin.make(f"/admin/nodes/{place.node['id']}/retire", {"reason": "old"})
    assert rows(api, "select from node_drains where node_id = %s", place.node["id"]) == []


@pytest.mark.parametrize("drain_first", [False, True], ids=["create_first", "drain_first"])
def test_a_drain_and_a_create_that_race(api: PublicApi, tenant: Caller, place: Place, drain_first: bool) -> None:
    """The first transaction holds the node's lock and stops at its commit; the second one then sees what it made."""
    wanted, path = one_gpu(tenant, place), f"/admin/nodes/{place.node['id']}/drain"

    def creating() -> Any:
        return tenant.call("POST", "/allocations", wanted)

    def draining() -> Any:
        return api.admin.call("POST", path, {"deadline": at(5)})

    first, second = (draining, creating) if drain_first else (creating, draining)
    answers = in_order(api.database, first, second)
    if drain_first:
        assert (answers[0].status_code, answers[1].json()["code"]) == (200, "sku_unavailable")
        return
    made = answers[0].json()["allocation_id"]
    assert [one["owner"] for one in answers[1].json()["drain"]["remaining"]] == [f"allocations/{made}"]
    assert [kind for kind, _, _ in to_tenant(api, made)] == TO_TENANTS[:1]


@pytest.mark.parametrize("drain_first", [False, True], ids=["window_first", "drain_first"])
def test_a_drain_and_a_window_that_race_both_succeed(api: PublicApi, place: Place, drain_first: bool) -> None:
    path = f"/admin/nodes/{place.node['id']}/drain"

    def committing() -> Any:
        return api.admin.call("POST", "/admin/maintenance", body(place))

    def draining() -> Any:
        return api.admin.call("POST", path, {"deadline": at(5)})

    first, second = (draining, committing) if drain_first else (committing, draining)
    answers = in_order(api.database, first, second)
    assert sorted(answer.status_code for answer in answers) == [200, 201]
    assert api.admin.get(f"/admin/nodes/{place.node['id']}")["drained"] is True


def test_of_two_drains_that_race_the_later_order_counts(api: PublicApi, tenant: Caller, place: Place) -> None:
    allocation, path = rent(tenant, place)["allocation_id"], f"/admin/nodes/{place.node['id']}/drain"
    orders = [{"deadline": at(hours)} for hours in (5, 6, 7)]
    answers = at_once(*[lambda order=order: api.admin.call("POST", path, order) for order in orders])
    assert [answer.status_code for answer in answers] == [200] * 3
    deadlines = [payload["deadline"] for _, payload, _ in to_tenant(api, allocation)]
    assert len(deadlines) == 3
    found = api.admin.get(f"/admin/nodes/{place.node['id']}")["drain"]["deadline"]
    assert found.replace("Z", "+00:00") == deadlines[-1]


def test_every_event_of_a_drain_is_as_documented_and_every_promise_is_kept(
    api: PublicApi, tenant: Caller, place: Place
) -> None:
    allocation = rent(tenant, place)["allocation_id"]
    drain(api, place, deadline=at(5), reason="new hall")
    pass_deadline(api, place)
    assert sweep(api, place) == "overdue"
    api.admin.make(f"/admin/nodes/{place.node['id']}/uncordon")
    rows(api, END, allocation)
    drain(api, place)
    assert sweep(api, place) == "drained"
    subjects = [f"allocations/{allocation}", f"nodes/{place.node['id']}"]
    written = rows(
        api,
        "select event_type, payload from outbox where event_type = any (%s) and subject = any (%s)",
        [*TO_TENANTS, *TO_OPERATORS],
        subjects,
    )
    assert {kind for kind, _ in written} == {*TO_TENANTS, *TO_OPERATORS}
    for kind, payload in written:
        schema = {**EVENT_KINDS[EventType(str(kind))].schema(), "additionalProperties": False}
        Draft202012Validator(schema, format_checker=FormatChecker()).validate(payload)
    verdict = check_complete_waits(api.database, Bounds())
    assert verdict.kept, verdict.violations
