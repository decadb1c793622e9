"""Holds through the API: what they block, conflicts and refusals, overdue holds, quotas, and keys."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from tests.api.calling import Caller, Place, at_once, new_place, new_tenant, problem, rent
from tests.api.reservations.reserving import DAY, HOLDER, act, hold, make_overdue, moment, seat, try_hold
from tests.support.public_api import PublicApi
from tests.support.public_api import module_place as place

__all__ = ["place"]


def test_a_hold_says_what_it_holds(api: PublicApi, tenant: Caller, place: Place) -> None:
    resource = seat(api)
    made = hold(tenant, f"slot:{place.node['id']}:3", resource, ttl_seconds=60, name="two things")
    assert (made["status"], made["result"], made["gpus_held"]) == ("hold", "ok", 1)
    assert made["resources"] == [f"slot:{place.node['id']}:3", resource]
    held_for = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["held_at"])
    assert held_for == timedelta(seconds=60)
    assert made["starts_at"] == made["held_at"]
    assert made["waits"] == {"for": "holder", "since": made["held_at"], "until": made["expires_at"]}
    shown = api.admin.get(f"/reservations/{made['reservation_id']}", tenant_id=tenant.tenant_id)
    assert {**shown, "result": "ok", "created_version": None} == made
    node = tenant.get(f"/resources/node:{place.node['id']}")
    assert (node["state"], node["reservation_id"]) == ("reserved", made["reservation_id"])
    strangers = new_tenant(api.admin).get(f"/resources/{resource}")
    assert (strangers["state"], strangers["reservation_id"]) == ("reserved", None)
    assert tenant.get(f"/resources/slot:{place.node['id']}:4")["state"] == "available"
    assert act(tenant, "cancel", made["reservation_id"]).status_code == 200


def test_losers_are_shown_which_of_their_own_objects_conflict(api: PublicApi, tenant: Caller, place: Place) -> None:
    resource, slot = seat(api), f"slot:{place.node['id']}:7"
    made = hold(tenant, resource, slot)
    refused = problem(try_hold(tenant, resource), 409, "resource_busy")
    assert refused["conflicts"] == [f"reservations/{made['reservation_id']}"]
    assert abs(datetime.fromisoformat(refused["server_time"]) - datetime.now(UTC)) < DAY
    rival = new_tenant(api.admin)
    key = uuid.uuid4().hex
    first = try_hold(rival, f"node:{place.node['id']}", key=key)
    assert problem(first, 409, "resource_busy")["conflicts"] == []
    act(tenant, "cancel", made["reservation_id"])
    assert try_hold(rival, f"node:{place.node['id']}", key=key).content == first.content, "the refusal is kept"
    all_or_nothing = seat(api)
    blocker = hold(tenant, resource)
    problem(try_hold(rival, all_or_nothing, resource), 409, "resource_busy")
    assert rival.get(f"/resources/{all_or_nothing}")["state"] == "available"
    act(tenant, "cancel", blocker["reservation_id"])


def test_an_allocation_is_in_the_way_and_a_hold_of_an_allocation(api: PublicApi, tenant: Caller) -> None:
    place = new_place(api.admin, api.database)
    made = rent(tenant, place)
    refused = problem(try_hold(tenant, f"node:{place.node['id']}"), 409, "resource_busy")
    assert refused["conflicts"] == [f"allocations/{made['allocation_id']}"]
    index = tenant.get(f"/allocations/{made['allocation_id']}")["slots"][0]
    assert tenant.get(f"/resources/slot:{place.node['id']}:{index}")["state"] == "confirmed"
    free = [f"slot:{place.node['id']}:{slot}" for slot in range(8) if slot != index]
    hold(tenant, *free)
    body = {
        "sku": place.sku,
        "gpus": 1,
        "region": place.region,
        "ssh_key_ids": [tenant.get("/ssh-keys")["items"][0]["id"]],
    }
    assert problem(tenant.call("POST", "/allocations", body), 409, "sku_unavailable")["reason"] == "busy_now"


def test_units_of_an_ended_right_are_free_only_once_they_are_clean(api: PublicApi, tenant: Caller) -> None:
    place = new_place(api.admin, api.database)
    made = rent(tenant, place)
    index = tenant.make(f"/allocations/{made['allocation_id']}/release", {})["slots"][0]
    slot = f"slot:{place.node['id']}:{index}"
    refused = problem(try_hold(tenant, slot), 409, "resource_busy")
    assert refused["conflicts"] == [f"allocations/{made['allocation_id']}"]
    before = tenant.get(f"/resources/{slot}")
    assert before["state"] == "confirmed", "it is being cleaned up"
    hold(tenant, slot, starts_at=moment(DAY))
    api.database.execute(
        "update claims set waits_for = 'force_release', waits_until = null where owner_id = %s",
        (made["allocation_id"],),
    )
    blocked = tenant.get(f"/resources/{slot}")
    assert blocked["state"] == "cleanup_blocked"
    assert blocked["row_version"] > before["row_version"]
    problem(try_hold(tenant, slot), 409, "resource_busy")


def test_back_to_back_is_no_overlap(api: PublicApi, tenant: Caller) -> None:
    resource = seat(api)
    first, second, third = moment(DAY), moment(2 * DAY), moment(3 * DAY)
    middle = hold(tenant, resource, starts_at=first, ends_at=second)
    hold(tenant, resource, ends_at=first)
    hold(tenant, resource, starts_at=second, ends_at=third)
    hold(tenant, resource, starts_at=third)
    assert tenant.get(f"/resources/{resource}")["state"] == "reserved"
    problem(
        try_hold(tenant, resource, starts_at=moment(DAY - timedelta(seconds=1)), ends_at=second), 409, "resource_busy"
    )
    problem(try_hold(tenant, resource, starts_at=moment(300 * DAY)), 409, "resource_busy")
    act(tenant, "cancel", middle["reservation_id"])
    hold(tenant, resource, starts_at=first, ends_at=second)


def test_exactly_one_of_many_simultaneous_holds_wins(api: PublicApi, tenant: Caller, place: Place) -> None:
    slots = [f"slot:{place.node['id']}:{index}" for index in range(3)]
    bundles = [[slots[n % 3], slots[(n + 1) % 3]] for n in range(12)]
    tenants = [new_tenant(api.admin) for _ in range(3)]
    answers = at_once(*(lambda n=n: try_hold(tenants[n % 3], *bundles[n]) for n in range(12)))
    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 11]
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {"resource_busy"}
    (won,) = [n for n, answer in enumerate(answers) if answer.status_code == 201]
    act(tenants[won % 3], "cancel", answers[won].json()["reservation_id"])


def test_a_rival_ends_what_is_overdue(api: PublicApi, tenant: Caller, place: Place) -> None:
    resource, slot = seat(api), f"slot:{place.node['id']}:5"
    late = hold(tenant, resource, slot)["reservation_id"]
    make_overdue(api, late)
    rival = new_tenant(api.admin)
    # It held more than the rival wants: all of it is free, and the quota is back.
    hold(rival, resource)
    shown = tenant.get(f"/reservations/{late}")
    assert (shown["status"], shown["waits"]) == ("expired", None)
    assert tenant.get(f"/resources/{slot}")["state"] == "available"
    used = api.database.execute(
        "select gpus_used from tenant_quotas where tenant_id = %s", (tenant.tenant_id,)
    ).fetchone()
    assert used == (0,)
    problem(act(tenant, "confirm", late), 409, "invalid_state")


def test_gpus_of_a_sku(api: PublicApi, tenant: Caller) -> None:
    place = new_place(api.admin, api.database)
    wish = {"sku": place.sku, "gpus": 2, "region": place.region, "holder_id": HOLDER}
    made = tenant.make("/reservations", {**wish, "count": 3})
    assert (made["gpus"], made["count"], made["gpus_held"], len(made["resources"])) == (2, 3, 6, 6)
    refused = problem(tenant.call("POST", "/reservations", {**wish, "count": 2}), 409, "sku_unavailable")
    assert refused["reason"] in ("busy_now", "only_fragments_left")
    problem(tenant.call("POST", "/reservations", {**wish, "sku": "none"}), 409, "sku_unavailable")
    make_overdue(api, made["reservation_id"])
    # The pool's overdue holds end before a refusal, and before that of a create too.
    again = tenant.make("/reservations", {**wish, "gpus": 8})
    assert tenant.get(f"/reservations/{made['reservation_id']}")["status"] == "expired"
    make_overdue(api, again["reservation_id"])
    rent(tenant, place)
    assert tenant.get(f"/reservations/{again['reservation_id']}")["status"] == "expired"


def test_held_gpus_count_in_the_quota(api: PublicApi) -> None:
    place = new_place(api.admin, api.database)
    tenant = new_tenant(api.admin, gpus_limit=8)
    made = hold(tenant, f"node:{place.node['id']}", starts_at=moment(DAY), ends_at=moment(2 * DAY))
    refused = problem(try_hold(tenant, f"slot:{place.node['id']}:0", ends_at=moment(DAY / 2)), 409, "quota_exceeded")
    assert (refused["gpus_used"], refused["gpus_limit"]) == (8, 8)
    hold(tenant, seat(api))
    make_overdue(api, made["reservation_id"])
    assert try_hold(tenant, f"slot:{place.node['id']}:0", ends_at=moment(DAY / 2)).status_code == 201


def test_what_is_out_of_service_cannot_be_held(api: PublicApi, tenant: Caller) -> None:
    place = new_place(api.admin, api.database)
    node = f"node:{place.node['id']}"
    api.database.execute("update nodes set online = false where id = %s", (place.node["id"],))
    assert problem(try_hold(tenant, node), 409, "resource_out_of_service")["reason"] == "the node is offline"
    later = hold(tenant, node, starts_at=moment(DAY), ends_at=moment(2 * DAY))
    shown = tenant.get(f"/resources/{node}")
    assert (shown["state"], shown["reason"]) == ("out_of_service", "the node is offline")
    api.admin.make(f"/admin/nodes/{place.node['id']}/cordon", {})
    cordoned = problem(try_hold(tenant, node, starts_at=moment(3 * DAY)), 409, "resource_out_of_service")
    assert cordoned["reason"] == "the node is cordoned"
    act(tenant, "cancel", later["reservation_id"])
    resource = seat(api)
    api.database.execute("update resources set state = 'out_of_service', reason = 'lent' where id = %s", (resource,))
    assert problem(try_hold(tenant, resource), 409, "resource_out_of_service")["reason"] == "lent"


def test_the_same_key_holds_once(api: PublicApi, tenant: Caller) -> None:
    resource, key = seat(api), uuid.uuid4().hex
    answers = at_once(*[lambda: try_hold(tenant, resource, key=key)] * 8)
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    problem(try_hold(tenant, resource, key=key, ttl_seconds=5), 422, "operation_conflict")
    made = answers[0].json()
    act(tenant, "confirm", made["reservation_id"])
    # As long as the reservation's row is there, it is never held twice, however old the key.
    api.database.execute("delete from operations where scope = %s", (tenant.tenant_id,))
    again = try_hold(tenant, resource, key=key)
    assert again.json() == made
    assert again.headers["idempotent-replayed"] == "true"
    problem(try_hold(tenant, resource, key=key, ttl_seconds=5), 422, "operation_conflict")
    problem(act(tenant, "cancel", made["reservation_id"], key=key), 422, "operation_conflict")


def spellings(node_id: str) -> list[str]:
    """What Python's UUID takes for the same id."""
    bare = node_id.replace("-", "")
    moved = f"{bare[:4]}-{bare[4:16]}--{bare[16:20]}-{bare[20:]}"
    return [bare, moved, node_id.upper(), f"urn:uuid:{node_id}"]


def test_a_node_has_one_name(api: PublicApi, tenant: Caller, place: Place) -> None:
    """Else one slot would be stored under two names, and one key would mean two things."""
    node_id = place.node["id"]
    wrong = [f"{kind}{spelt}{rest}" for spelt in spellings(node_id) for kind, rest in (("node:", ""), ("slot:", ":6"))]
    wrong.append(f"slot:{node_id}:06")
    assert {uuid.UUID(spelt) for spelt in spellings(node_id)} == {uuid.UUID(node_id)}
    for name in wrong:
        key = uuid.uuid4().hex
        refused = try_hold(tenant, name, key=key)
        assert problem(refused, 404, "resource_not_found")["resources"] == [name]
        assert try_hold(tenant, name, key=key).content == refused.content, "the refusal is kept"
        problem(try_hold(tenant, f"slot:{node_id}:6", key=key), 422, "operation_conflict")
    problem(tenant.call("GET", f"/resources/node:{spellings(node_id)[1]}"), 404, "resource_not_found")
    key = uuid.uuid4().hex
    made = try_hold(tenant, f"slot:{node_id}:6", f"slot:{node_id}:6", key=key)
    assert made.json()["resources"] == [f"slot:{node_id}:6"]
    assert try_hold(tenant, f"slot:{node_id}:6", f"slot:{node_id}:6", key=key).content == made.content
    assert act(tenant, "cancel", made.json()["reservation_id"]).status_code == 200
