"""A caller without a live key costs one lookup: nothing of its body is read, parsed or validated."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem
from tests.api.processes import public_process
from tests.databases import copied_database
from tests.support.waiting import WAIT_SECONDS_MAX


@pytest.fixture(scope="module")
def database(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    with copied_database(postgres_server, migrated_template) as url:
        yield url


@pytest.fixture(scope="module")
def api(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with public_process(database, tmp_path_factory.mktemp("api")) as http:
        yield http


WRITES = (
    "POST /api/v1/allocations", "POST /api/v1/reservations", "POST /v1/commit", "POST /api/v1/webhooks",
    "POST /api/v1/admin/tenants", "PATCH /api/v1/allocations/0", "PUT /api/v1/admin/tenants/0/quota",
)  # fmt: skip


@pytest.mark.parametrize("what", WRITES)
def test_a_stranger_is_refused_before_its_body_arrives(api: httpx.Client, what: str) -> None:
    with socket.create_connection((api.base_url.host, api.base_url.port or 0), timeout=WAIT_SECONDS_MAX) as connection:
        connection.sendall(
            f"{what} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer berth_unknown\r\ncontent-type: application/json\r\n"
            "content-length: 200000\r\n\r\n{".encode()
        )
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert json.loads(body)["code"] == "unauthenticated"


def test_a_list_of_nonsense_is_refused_at_its_first_item(api: httpx.Client, database: str) -> None:
    tenant = new_tenant(Caller(api, insert_admin_key(database)))
    for member in ("operations", "preconditions"):
        headers = {"authorization": f"Bearer {tenant.key}", "content-type": "application/json"}
        body = b'{"%b":[' % member.encode() + b",".join([b"0"] * 120_000) + b"]}"
        problem(api.post("/v1/commit", content=body, headers=headers), 413, "too_large")
        body = b'{"%b":[' % member.encode() + b",".join([b"0"] * 9_000) + b"]}"
        refusal = problem(api.post("/v1/commit", content=body, headers=headers), 400, "malformed")
        assert [found["field"] for found in refusal["errors"]] == [f"{member}.0"]


def test_surplus_members_and_entries_are_counted(api: httpx.Client, database: str) -> None:
    admin = Caller(api, insert_admin_key(database))
    surplus = {str(number): 0 for number in range(5_000)}
    refusal = problem(admin.call("POST", "/admin/tenants", {"name": "x", **surplus}), 422, "invalid")
    assert [found["message"] for found in refusal["errors"]] == ["has 5001 members; at most 2 of them are known"]
    refusal = problem(new_tenant(admin).call("POST", "/allocations", {"labels": surplus}), 422, "invalid")
    assert {"field": "labels", "message": "has 5000 entries; at most 64 are allowed"} in refusal["errors"]
    few = problem(admin.call("POST", "/admin/tenants", {"name": "x", "y": 1, "z": 2}), 422, "invalid")
    assert [found["field"] for found in few["errors"]] == ["y", "z"]
