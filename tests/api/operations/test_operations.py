"""Keys over HTTP: every write takes one, any printable character is fine, and what became of it can be asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from berth.local.servers import LocalPostgres
from tests.api.calling import (
    Caller,
    fresh,
    insert_admin_key,
    new_place,
    new_region,
    new_tenant,
    one_gpu,
    problem,
    refusal,
    ssh_key,
)
from tests.api.documents import public_document
from tests.api.processes import public_process
from tests.databases import copied_database
from tests.support.public_api import PublicApi
from tests.support.public_api import module_tenant as tenant

__all__ = ["tenant"]

ODD_KEYS = [
    "a/b", "/", "//", "a/", "/a", ".", "..", "../x", "a/../b", "%", "%2F", "%00", "a%20b", "a b", "?", "a?since=1", "#", "a#b",
    "&", "a=b&c=d", ";", ":", "client:1:0a0b", "+", "a+b", "\\", '"', 'a"b', "'", "~", "`", "{key}", "[x]", "|", "<a>", "@", "!",
    "auto:x", "null", "0", "k" * 255,
]  # fmt: skip


@pytest.fixture(scope="module")
def api(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublicApi]:
    """A separate process, because a test client decodes paths twice. A status query waits a second for a key."""
    with copied_database(postgres_server, migrated_template) as url:
        key = insert_admin_key(url)
        with (
            public_process(url, tmp_path_factory.mktemp("operations"), {"BERTH_LOCK_TIMEOUT_SECONDS": "1"}) as http,
            psycopg.connect(url, autocommit=True) as database,
        ):
            yield PublicApi(Caller(http, key), database)


def ask(caller: Caller, key: str, **query: Any) -> httpx.Response:
    """A question about a key; one that clients take for a step in the path is put in quotes, as in the header."""
    written = f'"{key}"' if key in (".", "..") else key
    return caller.call("GET", f"/operations/{quote(written, safe='')}", **query)


def told(caller: Caller, key: str, **query: Any) -> dict[str, Any]:
    """The response to a status query."""
    answer = ask(caller, key, **query)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    assert document["key"] == key
    assert document["definite"] == (document["state"] in ("committed", "rejected", "unknown"))
    return document


def add_key(caller: Caller, key: str) -> httpx.Response:
    """A write: an SSH key."""
    return caller.call("POST", "/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()}, key=key)


def test_every_write_of_the_document_takes_a_key() -> None:
    document = public_document()
    without = [
        f"{method} {path}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method in ("post", "put", "patch", "delete")
        and not any(p["name"].lower() == "idempotency-key" for p in operation.get("parameters", ()))
    ]
    of_nodes = [
        "post /api/v1/deploy-systems/enroll", "post /api/v1/deploy-systems/enroll/challenge",
        "post /api/v1/invitations/accept",
        "post /api/v1/nodes/enroll", "post /api/v1/nodes/enroll/challenge", "post /api/v1/sites/enroll",
    ]  # fmt: skip
    assert sorted(without) == of_nodes, "a one-time token is its key"


def test_effects_and_refusals_are_returned_with_their_answers(tenant: Caller) -> None:
    body = {"name": fresh("key"), "public_key": ssh_key()}
    done = tenant.call("POST", "/ssh-keys", body, key="done")
    document = told(tenant, "done")
    assert (document["state"], document["status"], document["code"]) == ("committed", 201, "ok")
    assert document["result"] == done.json()
    assert document["subject_id"] == done.json()["id"]
    assert document["retire_after"] > document["created_at"]
    refused = tenant.call("POST", "/ssh-keys", body, key="refused")
    document = told(tenant, "refused")
    assert (document["state"], document["status"], document["code"]) == ("rejected", 409, "already_exists")
    assert document["result"] == refused.json()
    gone = tenant.call("DELETE", f"/ssh-keys/{done.json()['id']}", key="gone")
    assert gone.status_code == 204
    assert told(tenant, "gone")["result"] is None


def test_a_create_is_answered_and_a_later_query_does_not_fence_it(api: PublicApi, tenant: Caller) -> None:
    place = new_place(api.admin, api.database)
    body = one_gpu(tenant, place)
    made = tenant.call("POST", "/allocations", body, key="create")
    assert told(tenant, "create")["result"] == made.json()
    assert told(tenant, "create")["subject_id"] == made.json()["allocation_id"]
    assert told(tenant, "asked first")["state"] == "unknown"
    late = tenant.call("POST", "/allocations", body, key="asked first")
    assert problem(late, 409, "operation_fenced")["outcome"] == "not_done"
    assert "idempotent-replayed" not in late.headers
    assert told(tenant, "asked first")["state"] == "unknown"
    count = "select count(*) from allocations where operation_key = 'asked first'"
    assert api.database.execute(count).fetchone() == (0,)


def test_an_operation_is_shown_to_its_caller_alone(admin: Caller, tenant: Caller, stranger: Caller) -> None:
    other = new_tenant(admin)
    add_key(tenant, "mine")
    assert told(tenant, "mine")["state"] == "committed"
    assert told(other, "mine")["state"] == "unknown"
    assert told(admin, "mine")["state"] == "unknown", "an operator's keys are its own"
    assert add_key(tenant, "mine").status_code in (201, 422), "another's question fences nothing here"
    problem(ask(stranger, "mine"), 401, "unauthenticated")
    region = fresh("region")
    admin.call("PUT", f"/admin/regions/{region}", {"display_name": "x"}, key="an operator's")
    assert told(admin, "an operator's")["state"] == "committed"


@pytest.mark.parametrize("key", ODD_KEYS)
def test_any_printable_key_can_be_used_and_asked_for(tenant: Caller, key: str) -> None:
    assert told(tenant, f"never {key}"[:255])["state"] == "unknown"
    first = add_key(tenant, key)
    assert first.status_code == 201, first.text
    document = told(tenant, key)
    assert (document["state"], document["result"]) == ("committed", first.json())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255))
def test_a_key_means_the_same_in_the_header_and_in_the_path(api: PublicApi, tenant: Caller, key: str) -> None:
    """Whatever HTTP leaves of it: white space around a header's value is not part of it, and quotes are not part of a key."""
    sent = key.strip(" ")
    used, asked = add_key(tenant, sent), ask(tenant, sent)
    if sent in ("", '""'):
        assert (used.status_code, asked.status_code) == (400, 400), (used.text, asked.text)
        return
    assert used.status_code in (201, 422), used.text
    assert asked.json()["state"] == "committed", asked.text


@pytest.mark.parametrize("key", ["", '""', "k" * 256, "k" * 300, "\u00fc", "\N{ROCKET}", "a\nb", "a\x00b", "\x7f"])
def test_what_is_no_key_is_refused_in_the_path(tenant: Caller, key: str) -> None:
    # A line break ends a path before the key is checked.
    assert refusal(ask(tenant, key)) == (404, "not_found") if "\n" in key else (400, "malformed")


@pytest.mark.parametrize("key", ["k" * 300, "\N{ROCKET}", "t\u00fcr", '""', "tab\there"])
def test_what_is_no_key_is_refused_in_the_header_and_changes_nothing(api: PublicApi, tenant: Caller, key: str) -> None:
    place = new_place(api.admin, api.database)
    body = one_gpu(tenant, place)
    counted = "select (select count(*) from operations), (select count(*) from allocations)"
    before = api.database.execute(counted).fetchone()
    for path, content in (("/allocations", body), ("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})):
        headers = [
            (b"authorization", f"Bearer {tenant.key}".encode()),
            (b"idempotency-key", key.encode()),
        ]
        answer = tenant.http.post(f"/api/v1{path}", json=content, headers=headers)
        problem(answer, 400, "malformed")
    assert api.database.execute(counted).fetchone() == before


def test_the_same_key_for_another_endpoint_is_a_conflict(api: PublicApi, admin: Caller, tenant: Caller) -> None:
    place = new_place(admin, api.database)
    made = tenant.call("POST", "/allocations", one_gpu(tenant, place), key="both").json()
    release = f"/allocations/{made['allocation_id']}/release"
    problem(tenant.call("POST", release, key="both"), 422, "operation_conflict")
    assert tenant.call("POST", release, key="other").status_code == 202
    problem(tenant.call("POST", "/allocations", one_gpu(tenant, place), key="other"), 422, "operation_conflict")
    region = new_region(admin)
    body = {"display_name": "One"}
    assert admin.call("PUT", f"/admin/regions/{region}", body, key="put").status_code == 200
    problem(admin.call("PUT", f"/admin/regions/{fresh('region')}", body, key="put"), 422, "operation_conflict")


def test_a_secret_is_returned_again_to_its_first_caller(admin: Caller) -> None:
    made = admin.call("POST", "/admin/api-keys", {"name": "x", "role": "admin"}, key="a secret").json()
    assert told(admin, "a secret")["result"] == made


@pytest.mark.parametrize(
    "since", ["yesterday", "0", "1700000000", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "", "now"]
)
def test_an_unusable_time_is_refused_and_fences_nothing(tenant: Caller, since: str) -> None:
    refused = problem(ask(tenant, "since", since=since), 422, "invalid")
    assert [error["field"] for error in refused["errors"]] == ["since"]
    assert add_key(tenant, fresh("since")).status_code == 201


def test_times_are_held_against_the_servers_clock(tenant: Caller) -> None:
    now = datetime.now(UTC)
    ahead = problem(ask(tenant, "ahead", since=(now + timedelta(hours=1)).isoformat()), 422, "invalid")
    assert ahead["errors"] == [{"field": "since", "message": "it lies in the future"}]
    past = told(tenant, "past", since=(now - timedelta(days=2)).isoformat())
    assert (past["state"], past["definite"], past["result"]) == ("retired", False, None)
    assert "is no longer known" in past["detail"]
    assert add_key(tenant, "past").status_code == 201, "what was begun before the window is not fenced"
    assert told(tenant, "lately", since=(now - timedelta(hours=1)).isoformat())["state"] == "unknown"
    ancient = told(tenant, "ancient", since="0001-01-01T00:00:00+14:00")
    assert ancient["state"] == "retired"


def test_unknown_parameters_are_refused(tenant: Caller) -> None:
    assert refusal(ask(tenant, "x", sinze="2026-01-01T00:00:00Z")) == (422, "invalid")


def test_a_key_that_another_transaction_holds_is_pending(api: PublicApi, tenant: Caller) -> None:
    insert = "insert into operations (scope, key, fingerprint, retire_after) values (%s, 'held', %s, now())"
    with api.database.transaction(force_rollback=True):
        api.database.execute(insert, (tenant.tenant_id, b"a" * 32))
        answer = ask(tenant, "held")
        assert (answer.json()["state"], answer.json()["definite"]) == ("pending", False)
        assert answer.headers["retry-after"] == "1"
    assert told(tenant, "held")["state"] == "unknown"
