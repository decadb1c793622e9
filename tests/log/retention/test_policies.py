"""`/v1/retention`: policies of tenants and of the operators, within their bounds (docs/reference/log-retention.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, at_once, fresh, insert_admin_key, new_tenant, problem
from tests.api.processes import public_process
from tests.databases import copied_database
from tests.log.retention.partitions import append, head
from tests.log.retention.policies import put, send
from tests.support.public_api import PublicApi


def ids(caller: Caller) -> list[str]:
    """What a caller finds."""
    return [policy["policy_id"] for policy in send(caller, "GET").json()]


def test_a_policy_is_made_changed_found_and_deleted(api: PublicApi) -> None:
    tenant = new_tenant(api.admin)
    now = append(api.database, 5)
    made = put(tenant, "backup", now)
    assert made.status_code == 201, made.text
    assert (made.json()["policy_id"], made.json()["prevent_truncate"], made.json()["kept_from"]) == ("backup", now, now)
    changed = put(tenant, "backup", now + 1)
    assert (changed.status_code, changed.json()["prevent_truncate"]) == (200, now + 1)
    found = send(tenant, "GET", "backup")
    assert found.status_code == 200
    assert found.json() == changed.json()
    assert int(found.headers["berth-version"]) >= now
    put(tenant, "a", 0)
    assert ids(tenant) == ["a", "backup"]
    assert send(tenant, "DELETE", "backup").status_code == 204
    problem(send(tenant, "GET", "backup"), 404, "not_found")
    problem(send(tenant, "DELETE", "backup"), 404, "not_found")
    assert ids(tenant) == ["a"]
    with_slash = api.admin.http.get("/v1/retention/", headers={"authorization": f"Bearer {tenant.key}"})
    assert with_slash.json() == send(tenant, "GET").json()


def test_each_sees_its_own_and_operators_are_one(api: PublicApi) -> None:
    mine, other = new_tenant(api.admin), new_tenant(api.admin)
    name = fresh("policy-")
    for caller in (mine, other, api.admin):
        assert put(caller, name, 1).status_code == 201
    assert send(other, "DELETE", name).status_code == 204
    assert ids(mine) == [name]
    assert ids(other) == []
    assert name in ids(api.admin)
    audited = api.database.execute(
        "select action, detail from audit where subject = %s and principal_kind = 'admin'", (f"retention/{name}",)
    ).fetchall()
    assert audited == [("retention.put", {"prevent_truncate": 1})], "tenants' are no operators' business"
    assert send(api.admin, "DELETE", name).status_code == 204


def test_a_retry_gets_the_same_answer_and_other_content_is_refused(api: PublicApi) -> None:
    tenant, key = new_tenant(api.admin), fresh("key-")
    first, again = put(tenant, "p", 1, key=key), put(tenant, "p", 1, key=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.headers["idempotent-replayed"] == "true"
    problem(put(tenant, "p", 2, key=key), 422, "operation_conflict")
    gone = fresh("key-")
    for _ in range(2):
        assert send(tenant, "DELETE", "p", key=gone).status_code == 204
    assert ids(tenant) == []


def test_a_policy_cannot_name_what_is_gone_or_is_to_come(api: PublicApi) -> None:
    tenant = new_tenant(api.admin)
    now = append(api.database, 20)
    refused = problem(put(tenant, "p", now + 2), 400, "version_in_future")
    assert refused["version"] >= now
    assert put(tenant, "next", head(api.database) + 1).status_code == 201
    api.database.execute("update log_first set version = 5")
    try:
        gone = problem(put(api.admin, "old", 4), 410, "log_truncated")
        assert gone["first_version"] == 5
        problem(put(api.admin, "old", 0), 410, "log_truncated")
        assert put(api.admin, "old", 5).status_code == 201
    finally:
        api.database.execute("update log_first set version = 1")
        send(api.admin, "DELETE", "old")


@pytest.mark.parametrize(
    "body",
    [{}, {"prevent_truncate": -1}, {"prevent_truncate": 2**63}, {"prevent_truncate": "1"}, {"prevent_truncate": None},
     {"prevent_truncate": True}, {"prevent_truncate": 1, "more": 1}, [], "1"],
    ids=str,
)  # fmt: skip
def test_bad_bodies_change_nothing(api: PublicApi, body: Any) -> None:
    tenant = new_tenant(api.admin)
    problem(send(tenant, "PUT", "p", body), 422, "invalid")
    assert ids(tenant) == []


@pytest.mark.parametrize("name", ["-p", "p" * 101, "p%20q", "%00", "p%2Fq"], ids=str)
def test_bad_names_are_refused(api: PublicApi, name: str) -> None:
    assert put(new_tenant(api.admin), name, 1).status_code in (404, 422)


def test_there_are_so_many_policies_and_no_more(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path
) -> None:
    bounds = {"BERTH_RETENTION_POLICIES_MAX": "2", "BERTH_RETENTION_TENANT_VERSIONS_MAX": "5"}
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, tmp_path, bounds) as http,
        psycopg.connect(url, autocommit=True) as database,
    ):
        operator = Caller(http, insert_admin_key(url))
        tenant = new_tenant(operator)
        now = append(database, 20)
        least = problem(put(tenant, "p", now - 6), 409, "retention_out_of_bounds")["prevent_truncate_min"]
        assert least == now - 5
        assert put(tenant, "p", now).status_code == 201
        assert put(operator, "p", 0).status_code == 201
        for caller in (tenant, operator):
            assert [put(caller, name, now).status_code for name in ("p", "q", "p")] == [200, 201, 200]
            problem(put(caller, "r", now), 409, "quota_exceeded")
            for name in ("p", "q"):
                assert send(caller, "DELETE", name).status_code == 204
        outcomes = at_once(*[lambda n=n: put(tenant, f"s{n}", now + 1).status_code for n in range(6)])
        assert sorted(outcomes) == [201, 201, 409, 409, 409, 409]
