"""Permissions, responses to unusable requests, and no second run of a retry: on every path alike."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import httpx
import pytest

from tests.api.calling import Caller, at_once, fresh, new_node, new_region, new_tenant, problem, refusal, ssh_key
from tests.support.public_api import PublicApi

SOME_ID = "01900000-0000-7000-8000-000000000000"
ADMIN_PATHS = [
    ("GET", "/admin/tenants", None),
    ("POST", "/admin/tenants", {"name": "x"}),
    ("GET", f"/admin/tenants/{SOME_ID}", None),
    ("PATCH", f"/admin/tenants/{SOME_ID}", {"state": "suspended"}),
    ("PUT", f"/admin/tenants/{SOME_ID}/quota", {"gpus_limit": 1}),
    ("GET", "/admin/api-keys", None),
    ("POST", "/admin/api-keys", {"name": "x", "role": "admin"}),
    ("DELETE", f"/admin/api-keys/{SOME_ID}", None),
    ("PUT", "/admin/regions/north", {"display_name": "North"}),
    ("PUT", "/admin/skus/s", {"shape": "gpu_slice", "gpu_model": "H200", "allowed_counts": [1]}),
    ("PUT", "/admin/images/i", {"url": "https://x/y", "sha256": "a" * 64, "shapes": ["gpu_slice"]}),
    ("GET", "/admin/nodes", None),
    ("GET", f"/admin/nodes/{SOME_ID}", None),
    ("POST", f"/admin/nodes/{SOME_ID}/enrolment-token", {}),
    ("POST", f"/admin/nodes/{SOME_ID}/cordon", None),
    ("POST", f"/admin/nodes/{SOME_ID}/uncordon", None),
    ("POST", f"/admin/nodes/{SOME_ID}/drain", None),
    ("POST", f"/admin/nodes/{SOME_ID}/certificates/revoke", {"reason": "lost"}),
    ("GET", "/admin/allocations", None),
    ("GET", f"/admin/allocations/{SOME_ID}", None),
    ("POST", f"/admin/allocations/{SOME_ID}/force-release", {"reason": "stuck"}),
    ("POST", "/admin/resources/no-such-seat/out-of-service", {"reason": "lost"}),
    ("POST", "/admin/resources/no-such-seat/in-service", None),
    ("GET", "/admin/audit", None),
]
TENANT_PATHS = [
    ("GET", "/skus", None),
    ("GET", "/regions", None),
    ("GET", "/images", None),
    ("GET", "/availability", None),
    ("GET", "/ssh-keys", None),
    ("GET", f"/ssh-keys/{SOME_ID}", None),
    ("DELETE", f"/ssh-keys/{SOME_ID}", None),
    ("GET", "/allocations", None),
    ("GET", f"/allocations/{SOME_ID}", None),
    ("GET", f"/allocations/{SOME_ID}/timeline", None),
    ("POST", f"/allocations/{SOME_ID}/release", None),
]


def test_a_query_parameter_that_a_path_does_not_know_is_refused(admin: Caller, stranger: Caller) -> None:
    """`?dry_run=true` that is passed over is a write that was not meant."""
    tenant = new_tenant(admin)
    writes: list[tuple[str, str, Any]] = [
        ("POST", "/allocations", {}),
        ("POST", "/ssh-keys", {}),
        ("POST", "/reservations", {}),
    ]
    for caller, paths in ((admin, ADMIN_PATHS), (tenant, [*TENANT_PATHS, *writes])):
        for method, path, body in paths:
            refused = problem(caller.call(method, path, body, dry_run="true"), 422, "invalid")
            assert "dry_run" in [error["field"] for error in refused["errors"]], (method, path, refused)
    problem(stranger.call("POST", "/allocations", {}, dry_run="true"), 401, "unauthenticated")
    node = new_node(admin, new_region(admin))
    problem(admin.call("POST", f"/admin/nodes/{node['id']}/cordon", dry_run="true"), 422, "invalid")
    assert admin.get(f"/admin/nodes/{node['id']}")["state"] == node["state"]


def test_every_admin_path_is_forbidden_to_tenants_and_closed_to_strangers(admin: Caller, stranger: Caller) -> None:
    tenant = new_tenant(admin)
    for method, path, body in ADMIN_PATHS:
        assert refusal(tenant.call(method, path, body)) == (403, "forbidden")
        assert refusal(stranger.call(method, path, body)) == (401, "unauthenticated")


def test_every_path_of_the_document_is_closed_to_strangers_and_operators_ones_to_tenants(
    admin: Caller, stranger: Caller
) -> None:
    """Covers paths missing from the lists above too. Agents enrol, and users join, by a one-time token."""
    tenant = new_tenant(admin)
    document = admin.http.get("/openapi.json").json()
    enrolments = (
        "/api/v1/nodes/enroll", "/api/v1/sites/enroll", "/api/v1/deploy-systems/enroll", "/api/v1/invitations/accept",
    )  # fmt: skip
    asked = [
        (method.upper(), re.sub(r"\{[^}]+\}", SOME_ID, path.removeprefix("/api/v1")))
        for path, of in document["paths"].items() if path.startswith("/api/v1/") and not path.startswith(enrolments)
        for method in of if method in ("get", "post", "put", "patch", "delete")
    ]  # fmt: skip
    own = [(method, path) for method, path in asked if path.startswith("/admin/")]
    assert len(own) > 30
    for method, path in asked:
        problem(stranger.call(method, path, {} if method != "GET" else None), 401, "unauthenticated")
    problem(stranger.call("POST", "/invitations/accept", {"token": "berth_inv_x"}), 401, "unauthenticated")
    for method, path in own:
        problem(tenant.call(method, path, {} if method != "GET" else None), 403, "forbidden")


def test_every_tenant_path_is_closed_to_strangers(admin: Caller, stranger: Caller) -> None:
    for method, path, body in TENANT_PATHS:
        assert refusal(stranger.call(method, path, body)) == (401, "unauthenticated")
        assert refusal(Caller(admin.http, "berth_aaaaaaaa_wrong").call(method, path, body)) == (401, "unauthenticated")


def test_what_does_not_exist_is_not_found(admin: Caller) -> None:
    tenant = new_tenant(admin)
    for caller, paths in ((admin, ADMIN_PATHS), (tenant, TENANT_PATHS)):
        for method, path, body in paths:
            if SOME_ID in path:
                assert refusal(caller.call(method, path, body)) == (404, "not_found")
                assert refusal(caller.call(method, path.replace(SOME_ID, "no~id"), body)) == (422, "invalid")
    assert refusal(admin.call("GET", "/admin/nodes/no-such-node")) == (404, "not_found")
    assert refusal(admin.call("GET", "/nothing-here")) == (404, "not_found")
    assert refusal(admin.call("DELETE", "/admin/tenants")) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "gpus_limit": "8"},
        {"name": "x", "gpus_limit": 8.5},
        {"name": "x", "gpus_limit": 1e300},
        {"name": "x", "gpus_limit": True},
        {"name": "x", "gpus_limit": -1},
        {"name": "x", "gpus_limit": 2**31},
        {"name": "x", "gpus_limit": 10**40},
        {"name": 5},
        {"name": None},
        {"name": ""},
        {"name": " \u00a0"},
        {"name": "x" * 101},
        {"name": "nul\x00"},
        {"name": "line\nbreak"},
        {"nam": "x"},
        {"name": "x", "colour": "blue"},
        {},
        [],
        "text",
        None,
    ],
)
def test_bodies_that_do_not_fit_name_the_field(admin: Caller, body: Any) -> None:
    document = problem(admin.call("POST", "/admin/tenants", body), 422, "invalid")
    assert document["errors"]
    assert all({"field", "message"} == set(error) for error in document["errors"])


SENTENCE_PATHS = [
    f"/admin/allocations/{SOME_ID}/force-release",
    f"/admin/allocations/{SOME_ID}/force-cleanup",
    f"/admin/nodes/{SOME_ID}/certificates/revoke",
    f"/admin/nodes/{SOME_ID}/retire",
    f"/admin/nodes/{SOME_ID}/orphans/{SOME_ID}/adopt",
    f"/admin/nodes/{SOME_ID}/orphans/{SOME_ID}/destroy",
    f"/admin/dead-letters/{SOME_ID}/discard",
]


@pytest.mark.parametrize("path", SENTENCE_PATHS)
def test_a_reason_on_the_record_says_something(admin: Caller, path: str) -> None:
    rest = {"runtime_verified_absent": True} if path.endswith("cleanup") else {}
    for blank in ("", " ", "\t\n ", "\u00a0\u2003"):
        document = problem(admin.call("POST", path, {"reason": blank, **rest}), 422, "invalid")
        assert [error["field"] for error in document["errors"]] == ["reason"]
    problem(admin.call("POST", path, {"reason": " \n why", **rest}), 404, "not_found")


def send(admin: Caller, content: Any, headers: dict[str, str] | None = None) -> httpx.Response:
    """A raw POST of a tenant."""
    own = {"authorization": f"Bearer {admin.key}", "content-type": "application/json", **(headers or {})}
    return admin.http.post("/api/v1/admin/tenants", content=content, headers=own)


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"\xff\xfe",
        b'{"name": "x"} trailing',
        b"[" * 9_000,
        b'{"name": ' + b"9" * 5_000 + b"}",
    ],
)
def test_what_is_no_json_is_malformed(admin: Caller, content: bytes) -> None:
    assert refusal(send(admin, content)) == (400, "malformed")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_a_body_is_in_utf8_without_a_mark(api: PublicApi, admin: Caller, encoding: str) -> None:
    """RFC 8259 §8.1: what reads it otherwise here is read otherwise elsewhere."""
    name = fresh("tenant")
    content = json.dumps({"name": name}).encode(encoding)
    for pieces in (content, iter([content[:1], content[1:2], content[2:]])):
        assert "UTF-8" in problem(send(admin, pieces), 400, "malformed")["detail"]
    assert api.database.execute("select from tenants where name = %s", (name,)).fetchone() is None


@pytest.mark.parametrize(
    "content", [b'{"name": "\\ud800"}', b'{"name": "\xed\xa0\x80"}', b'{"name": "x", "\\ud800": 1}']
)
def test_a_lone_surrogate_is_no_text(admin: Caller, content: bytes) -> None:
    assert refusal(send(admin, content)) == (422, "invalid")


def test_a_body_that_is_not_announced_as_json_is_refused(admin: Caller) -> None:
    assert refusal(send(admin, b'{"name": "x"}', {"content-type": "text/plain"})) == (422, "invalid")


def test_a_slash_too_many_is_not_found_and_leads_nowhere(admin: Caller) -> None:
    assert refusal(admin.call("GET", "/admin/tenants/")) == (404, "not_found")


def test_bodies_over_the_limit_are_too_large_however_they_come(admin: Caller) -> None:
    body = json.dumps({"name": "x" * 300_000}).encode()
    assert refusal(send(admin, body)) == (413, "too_large")
    assert refusal(send(admin, iter([body[:150_000], body[150_000:]]))) == (413, "too_large")


def test_unknown_query_parameters_and_foreign_cursors_are_refused(admin: Caller) -> None:
    assert refusal(admin.call("GET", "/admin/nodes", satte="active")) == (422, "invalid")
    for limit in (0, 501, "many"):
        assert refusal(admin.call("GET", "/admin/nodes", limit=limit)) == (422, "invalid")
    new_tenant(admin)
    new_tenant(admin)
    cursor = admin.get("/admin/tenants", limit=1)["next_cursor"]
    assert refusal(admin.call("GET", "/admin/nodes", cursor=cursor)) == (400, "invalid_cursor")
    for junk in ("", "x", "e30", "a" * 1_000, "\u00fc", "bnVsbA"):
        assert refusal(admin.call("GET", "/admin/tenants", cursor=junk)) == (400, "invalid_cursor")


def test_every_answer_carries_a_request_id(admin: Caller, stranger: Caller) -> None:
    headers = {"x-request-id": "mine-1"}
    assert stranger.http.get("/api/v1/skus", headers=headers).headers["x-request-id"] == "mine-1"
    assert stranger.http.get("/ok").headers["x-request-id"]
    problem(stranger.http.get("/api/v1/skus", headers={"x-request-id": "x" * 129}), 400, "malformed")


def test_a_key_with_the_same_content_gets_the_stored_answer(api: PublicApi, admin: Caller) -> None:
    body, key = {"name": fresh("tenant")}, fresh("op")
    first = admin.call("POST", "/admin/tenants", body, key=key)
    again = admin.call("POST", "/admin/tenants", body, key=key)
    quoted = admin.call("POST", "/admin/tenants", body, key=f'"{key}"')
    assert first.status_code == again.status_code == quoted.status_code == 201
    assert first.content == again.content == quoted.content
    assert again.headers["idempotent-replayed"] == "true"
    document = problem(
        admin.call("POST", "/admin/tenants", {"name": fresh("tenant")}, key=key), 422, "operation_conflict"
    )
    assert key in document["detail"]
    count = api.database.execute("select count(*) from tenants where name = %s", (body["name"],)).fetchone()
    assert count == (1,)


def test_a_refusal_is_remembered_with_its_key(admin: Caller) -> None:
    name, key = fresh("tenant"), fresh("op")
    admin.make("/admin/tenants", {"name": name})
    first = admin.call("POST", "/admin/tenants", {"name": name}, key=key)
    again = admin.call("POST", "/admin/tenants", {"name": name}, key=key)
    problem(first, 409, "already_exists")
    problem(again, 409, "already_exists")
    assert again.headers["idempotent-replayed"] == "true"
    assert first.json() == again.json()


def test_malformed_requests_do_not_use_a_key_up(admin: Caller) -> None:
    key = fresh("op")
    problem(admin.call("POST", "/admin/tenants", {"nam": "x"}, key=key), 422, "invalid")
    assert admin.call("POST", "/admin/tenants", {"name": fresh("tenant")}, key=key).status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 256, "x" * 300, "t\u00fcr"])
def test_unusable_keys_are_refused(admin: Caller, key: str) -> None:
    answer = admin.http.post(
        "/api/v1/admin/tenants",
        json={"name": fresh("tenant")},
        headers=[(b"authorization", f"Bearer {admin.key}".encode()), (b"idempotency-key", key.encode("latin-1"))],
    )
    assert refusal(answer) == (400, "malformed")


@pytest.mark.parametrize("second", ["the same", "another"])
def test_two_keys_in_one_request_are_refused_and_neither_is_used(api: PublicApi, admin: Caller, second: str) -> None:
    first, name = fresh("op"), fresh("tenant")
    keys = [first, first if second == "the same" else fresh("op")]
    answer = admin.http.post(
        "/api/v1/admin/tenants",
        json={"name": name},
        headers=[("authorization", f"Bearer {admin.key}"), *(("idempotency-key", key) for key in keys)],
    )
    assert "Idempotency-Key" in problem(answer, 400, "malformed")["detail"]
    assert api.database.execute("select from tenants where name = %s", (name,)).fetchone() is None
    assert api.database.execute("select from operations where key = any(%s)", (keys,)).fetchone() is None


def test_keys_are_scoped_by_tenant(admin: Caller) -> None:
    first, second = new_tenant(admin), new_tenant(admin)
    body, key = {"name": "laptop", "public_key": ssh_key()}, fresh("op")
    answers = [caller.call("POST", "/ssh-keys", body, key=key) for caller in (first, second)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["id"] != answers[1].json()["id"]


def test_simultaneous_requests_with_one_key_run_once(api: PublicApi, admin: Caller) -> None:
    region, key = new_region(admin), fresh("op")
    body = {"name": fresh("node"), "region": region, "gpu_model": "H200", "shape": "gpu_slice", "slot_count": 2}
    answers = at_once(*[lambda: admin.call("POST", "/admin/nodes", body, key=key)] * 6)
    done = [answer for answer in answers if answer.status_code == 201]
    assert len({answer.content for answer in done}) == 1
    assert all(answer.status_code == 201 for answer in answers), [answer.text for answer in answers]
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1


def test_a_write_without_a_key_is_a_new_operation_each_time(admin: Caller) -> None:
    region = new_region(admin)
    assert new_node(admin, region)["id"] != new_node(admin, region)["id"]
    assert uuid.UUID(new_node(admin, region)["id"])
