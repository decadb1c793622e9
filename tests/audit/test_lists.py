"""Operators page through the audit with filters; a tenant reads the rows of its principals."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.audit import list_store
from tests.api.calling import Caller, fresh, new_tenant, problem, ssh_key


def _add_key(tenant: Caller) -> str:
    return str(tenant.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})["id"])


def test_a_tenant_reads_its_own_rows_alone(admin: Caller, tenant: Caller) -> None:
    other = new_tenant(admin)
    own, foreign = [_add_key(tenant) for _ in range(3)], _add_key(other)
    listed = tenant.every("/audit", 2)
    assert [entry["subject"] for entry in listed] == [f"ssh-keys/{one}" for one in own]
    assert {entry["tenant_id"] for entry in listed} == {tenant.tenant_id}
    assert tenant.get("/audit", subject=f"ssh-keys/{foreign}")["items"] == []
    problem(tenant.call("GET", "/admin/audit"), 403, "forbidden")
    problem(tenant.call("GET", "/audit", tenant_id=other.tenant_id), 422, "invalid")


def test_each_filter_selects_its_rows(admin: Caller, tenant: Caller) -> None:
    key = _add_key(tenant)
    assert len(tenant.every("/audit", 500)) == 1
    problem(tenant.call("DELETE", f"/ssh-keys/{fresh('no')}"), 422, "invalid")
    rows = tenant.every("/audit", 500)
    principal = rows[0]["principal"]["id"]
    wanted: list[tuple[dict[str, str], list[str]]] = [
        ({"subject": f"ssh-keys/{key}"}, ["ssh_key.create"]),
        ({"principal": principal}, ["ssh_key.create", "ssh_key.delete"]),
        ({"tenant_id": str(tenant.tenant_id)}, ["ssh_key.create", "ssh_key.delete"]),
        ({"tenant_id": str(tenant.tenant_id), "action": "ssh_key.delete"}, ["ssh_key.delete"]),
        ({"tenant_id": str(tenant.tenant_id), "outcome": "invalid"}, ["ssh_key.delete"]),
        ({"tenant_id": str(tenant.tenant_id), "outcome": "ok"}, ["ssh_key.create"]),
        ({"principal": principal, "since": rows[1]["recorded_at"]}, ["ssh_key.delete"]),
        ({"principal": principal, "until": rows[1]["recorded_at"]}, ["ssh_key.create"]),
        ({"principal": principal, "since": "2999-01-01T00:00:00Z"}, []),
    ]
    for filters, actions in wanted:
        assert [entry["action"] for entry in admin.every("/admin/audit", 500, **filters)] == actions, filters


def test_a_list_begins_after_a_sequence(tenant: Caller) -> None:
    for _ in range(4):
        _add_key(tenant)
    rows = tenant.every("/audit", 500)
    for number, row in enumerate(rows):
        assert tenant.every("/audit", 2, after=str(row["sequence"])) == rows[number + 1 :]
    assert tenant.every("/audit", 500, after="0") == rows
    assert tenant.every("/audit", 500, after=str(2**63 - 1024)) == []
    problem(tenant.call("GET", "/audit", after="-1"), 422, "invalid")
    problem(tenant.call("GET", "/audit", after=str(2**63 - 1023)), 422, "invalid")


def test_a_page_examines_a_bounded_number_of_rows_and_the_list_is_whole(
    admin: Caller, tenant: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [_add_key(tenant) for _ in range(7)]
    for key in (keys[3], keys[6]):
        assert tenant.call("DELETE", f"/ssh-keys/{key}").status_code == 204
    filters = {"tenant_id": str(tenant.tenant_id), "action": "ssh_key.delete"}
    whole = admin.every("/admin/audit", 500, **filters)
    assert [entry["subject"] for entry in whole] == [f"ssh-keys/{keys[3]}", f"ssh-keys/{keys[6]}"]
    monkeypatch.setattr(list_store, "EXAMINED_MAX", 3)
    pages, found = 0, list[Any]()
    cursor: dict[str, str] = {}
    while True:
        page = admin.get("/admin/audit", limit="2", **filters, **cursor)
        pages, found = pages + 1, found + page["items"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert (found, pages) == (whole, 4), "nine rows, three at a time, and one page that shows the end"
    assert admin.get("/admin/audit", tenant_id=str(tenant.tenant_id), limit="5")["next_cursor"] is not None
    assert len(admin.get("/admin/audit", tenant_id=str(tenant.tenant_id), limit="5")["items"]) == 5
