"""Reservations through the API: every row of the tables of docs/reservations.md, every refusal, and bad input."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.api.calling import Caller, Place, at_once, fresh, new_place, new_tenant, problem, rent
from tests.api.conftest import PublicApi

NOBODY = "01900000-0000-7000-8000-000000000000"
HOLDER = "order-17/agent-3"
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def place(api: PublicApi) -> Place:
    """A node of eight slots that every test of this module may name."""
    return new_place(api.admin, api.database)


@pytest.fixture
def tenant(api: PublicApi) -> Caller:
    """A tenant without a limit."""
    return new_tenant(api.admin)


def moment(after: timedelta) -> str:
    """So long from now, as RFC 3339."""
    return (datetime.now(UTC) + after).isoformat()


def seat(api: PublicApi) -> str:
    """A registered resource of the test's own."""
    made = api.admin.make("/admin/resources", {"id": fresh("seat")})
    assert (made["state"], made["kind"]) == ("available", "registered")
    return str(made["id"])


def hold(tenant: Caller, *resources: str, **members: Any) -> Any:
    """A hold that succeeds."""
    return tenant.make("/reservations", {"resources": list(resources), "holder_id": HOLDER, **members})


def try_hold(tenant: Caller, *resources: str, key: str | None = None, **members: Any) -> Any:
    """A hold, whatever comes of it."""
    body = {"resources": list(resources), "holder_id": HOLDER, **members}
    return tenant.call("POST", "/reservations", body, key=key)


def act(tenant: Caller, verb: str, reservation_id: str, holder: str = HOLDER, key: str | None = None) -> Any:
    """Confirm or cancel, whatever comes of it."""
    return tenant.call("POST", f"/reservations/{reservation_id}/{verb}", {"holder_id": holder}, key=key)


def make_overdue(api: PublicApi, reservation_id: str) -> None:
    """Its deadline has passed a moment ago."""
    api.database.execute(
        """update reservations set expires_at = clock_timestamp() - interval '1 ms',
           hold_until = clock_timestamp() - interval '1 ms' where id = %s""",
        (reservation_id,),
    )


def bring_to(api: PublicApi, tenant: Caller, resource: str, state: str) -> str:
    """A reservation in that state."""
    made = str(hold(tenant, resource)["reservation_id"])
    if state == "confirmed":
        assert act(tenant, "confirm", made).status_code == 200
    elif state == "cancelled":
        assert act(tenant, "cancel", made).status_code == 200
    elif state in ("overdue", "expired"):
        make_overdue(api, made)
        if state == "expired":
            assert act(tenant, "cancel", made).json()["status"] == "expired"
    elif state in ("consumed", "released"):
        # As the commands that turn over and that end windows do: through the one door.
        if state == "released":
            assert act(tenant, "confirm", made).status_code == 200
        api.database.execute(
            """select advance_reservation(id, state, row_version, %s, 'reservation.' || %s, '{}', clock_timestamp(), 60,
                                          null, null), close_reservation_claims(id) from reservations where id = %s""",
            (state, state, made),
        )
    return made


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


def test_losers_are_told_what_of_their_own_is_in_the_way(api: PublicApi, tenant: Caller, place: Place) -> None:
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


def test_units_of_an_ended_right_are_nobodys_before_they_are_clean(api: PublicApi, tenant: Caller) -> None:
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
    # The pool's overdue holds end before anybody is refused, and a create's too.
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
    {"resources": [f"r{n}" for n in range(10_000)]},
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
    "name", ["nothing", "node:nothing", f"node:{NOBODY}", f"slot:{NOBODY}:0", "slot:x:0", "a:b", "..."]
)
def test_resources_that_are_not_there(tenant: Caller, name: str) -> None:
    assert problem(try_hold(tenant, name), 404, "resource_not_found")["resources"] == [name]
    problem(tenant.call("GET", f"/resources/{name}"), 404, "resource_not_found")


def test_a_slot_that_the_node_does_not_have(tenant: Caller, place: Place) -> None:
    problem(try_hold(tenant, f"slot:{place.node['id']}:8"), 404, "resource_not_found")


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
