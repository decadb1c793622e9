"""What operators register, change and are refused; no process but the API in this one."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.api.calling import fresh, new_place, problem
from tests.support.public_api import PublicApi, api

__all__ = ["api"]

KEY = X25519PrivateKey.generate().public_key().public_bytes_raw().hex()
PIN = "ab" * 32
SEALED = "berth-bmc-1.AAAA"
CLAIM = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)
select id, %(tenant)s, 'allocation', gen_random_uuid(), int8multirange(int8range(unit_base, unit_base + 1)),
       tstzrange(clock_timestamp(), null), true, clock_timestamp(), nextval('fences') from nodes where id = %(node)s
"""


def new_site(api: PublicApi) -> dict[str, Any]:
    made: dict[str, Any] = api.admin.make("/admin/sites", {"name": fresh("site"), "recovery_key": KEY})
    return made


def new_node(api: PublicApi) -> str:
    place = new_place(api.admin, api.database)
    row = api.database.execute("select id from nodes where region = %s", (place.region,)).fetchone()
    assert row is not None
    return str(row[0])


def body_of(site_id: str, generation: int = 1, recipients: list[str] | None = None, **more: Any) -> dict[str, Any]:
    copies = [{"recipient": one, "text": SEALED} for one in recipients or [site_id]]
    return {
        "site_id": site_id, "url": "https://192.0.2.7", "certificate_sha256": PIN, "username": "root",
        "password": {"generation": generation, "copies": copies}, **more,
    }  # fmt: skip


def test_a_site_is_made_shown_and_removed(api: PublicApi) -> None:
    site = new_site(api)
    assert api.admin.get(f"/admin/sites/{site['name']}")["id"] == site["id"]
    problem(api.admin.call("POST", "/admin/sites", {"name": site["name"], "recovery_key": KEY}), 409, "already_exists")
    problem(api.admin.call("POST", "/admin/sites", {"name": "x", "recovery_key": "00"}), 422, "invalid")
    invited = api.admin.make(f"/admin/sites/{site['id']}/agents", {"name": "a"})
    assert invited["token"].startswith("enrol2.")
    in_use = problem(api.admin.call("DELETE", f"/admin/sites/{site['id']}"), 409, "site_in_use")
    assert (in_use["agents"], in_use["machines"]) == (1, 0)
    path = f"/admin/sites/{site['id']}/agents/{invited['agent_id']}/revoke"
    assert api.admin.make(path, {"reason": "gone"})["state"] == "retired"
    assert api.admin.call("DELETE", f"/admin/sites/{site['id']}").status_code == 204
    problem(api.admin.call("GET", f"/admin/sites/{site['id']}"), 404, "not_found")
    problem(api.admin.call("DELETE", f"/admin/sites/{site['id']}"), 404, "not_found")


def test_a_token_is_returned_again_to_its_key_and_stored_nowhere(api: PublicApi) -> None:
    site = new_site(api)
    key = fresh("key")
    first = api.admin.call("POST", f"/admin/sites/{site['id']}/agents", {"name": "a"}, key=key).json()
    again = api.admin.call("POST", f"/admin/sites/{site['id']}/agents", {"name": "a"}, key=key).json()
    assert first == again
    stored = api.database.execute("select body from operations where key = %s", (key,)).fetchone()
    assert first["token"] not in str(stored)


def test_a_site_has_a_bounded_number_of_agents(api: PublicApi) -> None:
    site = new_site(api)
    for number in range(8):
        api.admin.make(f"/admin/sites/{site['id']}/agents", {"name": f"a{number}"})
    refused = api.admin.call("POST", f"/admin/sites/{site['id']}/agents", {"name": "a8"})
    assert problem(refused, 409, "invalid_state")["state"] == "full"
    api.admin.make(f"/admin/sites/{site['id']}/agents", {"name": "a7"})


def test_a_bmc_is_put_changed_and_removed_and_no_answer_has_what_is_sealed(api: PublicApi) -> None:
    site, node = new_site(api), new_node(api)
    path = f"/admin/nodes/{node}/bmc"
    problem(api.admin.call("GET", path), 404, "not_found")
    key = fresh("key")
    made = api.admin.call("PUT", path, body_of(site["id"]), key=key)
    assert (made.status_code, made.json()["generation"], made.json()["recipients"]) == (200, 1, [site["id"]])
    assert api.admin.call("PUT", path, body_of(site["id"]), key=key).json() == made.json()
    repinned = api.admin.put(path, {**body_of(site["id"]), "certificate_sha256": "cd" * 32, "password": None})
    assert (repinned["generation"], repinned["certificate_sha256"]) == (1, "cd" * 32)
    outdated = problem(api.admin.call("PUT", path, body_of(site["id"])), 409, "sealing_outdated")
    assert (outdated["generation"], outdated["recipients"]) == (2, [site["id"]])
    assert api.admin.put(path, body_of(site["id"], 2))["generation"] == 2
    assert problem(api.admin.call("DELETE", f"/admin/sites/{site['id']}"), 409, "site_in_use")["machines"] == 1
    listed = api.admin.get("/admin/bmcs", site_id=site["id"])["items"]
    assert [one["node_id"] for one in listed] == [node]
    audited = api.database.execute("select string_agg(a::text, ' ') from audit_pending a").fetchone()
    for text in (made.text, str(listed), str(audited)):
        assert SEALED not in text
    assert api.admin.call("DELETE", path).status_code == 204
    left = api.database.execute("select count(*) from bmc_credentials where node_id = %s", (node,)).fetchone()
    assert left == (0,)
    problem(api.admin.call("DELETE", path), 404, "not_found")


@pytest.mark.quick("change1-422-invalid", "change6-404-not_found")
@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"url": "http://192.0.2.7"}, 422, "invalid"),
        ({"url": "https://u:p@192.0.2.7"}, 422, "invalid"),
        ({"url": "https://192.0.2.7/redfish"}, 422, "invalid"),
        ({"certificate_sha256": "AB" * 32}, 422, "invalid"),
        ({"username": "a b"}, 422, "invalid"),
        ({"password": None}, 422, "invalid"),
        ({"site_id": str(uuid.uuid4())}, 404, "not_found"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    api: PublicApi, change: dict[str, Any], status: int, code: str
) -> None:
    site, node = new_site(api), new_node(api)
    problem(api.admin.call("PUT", f"/admin/nodes/{node}/bmc", {**body_of(site["id"]), **change}), status, code)
    assert problem(api.admin.call("GET", f"/admin/nodes/{node}/bmc"), 404, "not_found")


def test_a_password_must_be_sealed_to_the_recovery_key_and_to_no_stranger(api: PublicApi) -> None:
    site, node = new_site(api), new_node(api)
    path = f"/admin/nodes/{node}/bmc"
    stranger = str(uuid.uuid4())
    for recipients in ([stranger], [site["id"], stranger]):
        problem(api.admin.call("PUT", path, body_of(site["id"], 1, recipients)), 409, "sealing_outdated")
    twice = body_of(site["id"], 1, [site["id"], site["id"]])
    assert problem(api.admin.call("PUT", path, twice), 422, "invalid")


def test_another_site_needs_the_password_again(api: PublicApi) -> None:
    site, other, node = new_site(api), new_site(api), new_node(api)
    path = f"/admin/nodes/{node}/bmc"
    api.admin.put(path, body_of(site["id"]))
    problem(api.admin.call("PUT", path, {**body_of(other["id"]), "password": None}), 422, "invalid")
    assert api.admin.put(path, body_of(other["id"], 2))["site_id"] == other["id"]


def test_one_task_of_a_bmc_is_open(api: PublicApi) -> None:
    site, node = new_site(api), new_node(api)
    path = f"/admin/nodes/{node}/bmc"
    problem(api.admin.call("POST", f"{path}/look"), 404, "not_found")
    api.admin.put(path, body_of(site["id"]))
    first = api.admin.make(f"{path}/look")["task"]
    assert (first["kind"], first["outcome"], first["waits"]["for"]) == ("look", None, "lease")
    assert api.admin.make(f"{path}/look")["task"]["id"] == first["id"]
    for method, where, body in (
        ("POST", f"{path}/rotate", None), ("DELETE", path, None), ("PUT", path, body_of(site["id"], 2)),
    ):  # fmt: skip
        assert problem(api.admin.call(method, where, body), 409, "invalid_state")["state"] == "task_open"


def test_a_machine_is_not_switched_while_something_works_on_it(api: PublicApi) -> None:
    site, node = new_site(api), new_node(api)
    path = f"/admin/nodes/{node}/bmc"
    problem(api.admin.call("POST", f"{path}/power", {"verb": "on"}), 404, "not_found")
    api.admin.put(path, body_of(site["id"]))
    problem(api.admin.call("POST", f"{path}/power", {"verb": "explode"}), 422, "invalid")
    for verb in ("off", "reset"):
        answer = api.admin.call("POST", f"{path}/power", {"verb": verb})
        assert problem(answer, 409, "invalid_state")["state"] == "active"
    api.admin.make(f"/admin/nodes/{node}/cordon")
    api.database.execute(CLAIM, {"tenant": uuid.uuid4(), "node": node})
    refused = problem(api.admin.call("POST", f"{path}/power", {"verb": "off"}), 409, "node_in_use")
    assert [one["owner_kind"] for one in refused["claims"]] == ["allocation"]
    api.database.execute(
        "update claims set booked = false, occupied = false, closed_at = clock_timestamp() where node_id = %s", (node,)
    )
    asked = api.admin.make(f"{path}/power", {"verb": "off"})["task"]
    assert (asked["kind"], asked["power_state"], asked["outcome"]) == ("power_off", None, None)
    assert api.admin.make(f"{path}/power", {"verb": "off"})["task"]["id"] == asked["id"]
    answer = api.admin.call("POST", f"{path}/power", {"verb": "on"})
    assert problem(answer, 409, "invalid_state")["state"] == "task_open"
    audited = api.database.execute(
        "select string_agg(detail::text, ' ') from audit_pending where action = 'node.bmc_power' and subject = %s",
        (f"nodes/{node}",),
    ).fetchone()
    assert '"kind": "power_off"' in str(audited)
