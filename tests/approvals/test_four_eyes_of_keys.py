"""Four eyes for operators' API keys: no operator alone makes, rotates or revokes one; those of tenants need no second."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from migrations.roles import Role
from orchestrator.database.transactions import connect_database
from orchestrator.operations.execution import Context, Limits
from tests.api.calling import Caller, new_tenant, problem
from tests.approvals.operators import Operator, digest_of, four_eyes_api, new_operator
from tests.databases import as_role, copied_database
from tests.support.public_api import PublicApi
from worker.sweepers.approvals import sweep_approvals

STATES = "select state, secret_hash is null, waits_until is null from approvals where id = %s"


@pytest.fixture(scope="module")
def url(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    with copied_database(postgres_server, migrated_template) as url:
        yield url


@pytest.fixture(scope="module")
def api(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PublicApi]:
    # Long enough that a key that is known here stays known unless the approval drops it.
    with four_eyes_api(url, tmp_path_factory.mktemp("authority"), credential_cache_seconds=60.0) as running:
        yield running


@pytest.fixture
def ann(api: PublicApi) -> Operator:
    return new_operator(api, "ann")


@pytest.fixture
def ben(api: PublicApi) -> Operator:
    return new_operator(api, "ben")


def asked(answer: Any) -> Any:
    """The approval that a change of a key waits for."""
    assert answer.status_code == 202, answer.text
    return answer.json()


def test_a_created_key_is_valid_when_it_is_approved_and_shown_to_its_requester(
    api: PublicApi, ann: Operator, ben: Operator
) -> None:
    body = {"name": "second", "role": "admin", "owner": "cleo"}
    first = ann.caller.call("POST", "/admin/api-keys", body, key="create-1")
    made = asked(first)
    assert first.headers["cache-control"] == "no-store"
    cleo = Caller(api.admin.http, made["key"])
    problem(cleo.call("GET", "/me"), 401, "unauthenticated")
    assert asked(ann.caller.call("POST", "/admin/api-keys", body, key="create-1"))["key"] == made["key"]
    assert ann.caller.get("/operations/create-1")["result"]["key"] == made["key"]
    assert made["key"] not in ben.caller.call("GET", "/operations/create-1").text
    shown = ben.caller.get(f"/admin/approvals/{made['approval_id']}")
    assert (shown["subject"], shown["parameters"]["owner"], shown["parameters"]["prefix"]) == (
        "api-keys", "cleo", made["key"][6:14],
    )  # fmt: skip
    answer = ben.decide("approve", made["approval_id"])
    assert (answer.status_code, "key" in answer.json()) == (200, False)
    assert cleo.get("/me")["role"] == "admin"
    key_id = answer.json()["result"]["key_id"]
    assert cleo.get("/me")["principal_id"] == key_id
    (row,) = api.admin.every("/admin/audit", 500, action="api_key.create", subject=f"api-keys/{key_id}")
    assert (row["detail"]["requested_by"]["owner"], row["detail"]["approved_by"]["owner"]) == ("ann", "ben")
    assert api.database.execute(STATES, (made["approval_id"],)).fetchone() == ("approved", True, True)


def test_no_secret_of_a_request_is_stored_or_listed(api: PublicApi, ann: Operator, ben: Operator) -> None:
    made = asked(ann.caller.call("POST", "/admin/api-keys", {"name": "x", "role": "viewer"}))
    listed = str(ben.caller.every("/admin/approvals", 500)) + str(ben.caller.every("/admin/audit", 500))
    assert made["key"] not in listed
    assert digest_of(made["key"]).hex() not in listed
    rows = api.database.execute("select payload::text from outbox union all select payload::text from log").fetchall()
    assert not [row for row in rows if made["key"][15:] in str(row)]
    assert ben.decide("reject", made["approval_id"], {"reason": "not needed"}).status_code == 200
    assert api.database.execute(STATES, (made["approval_id"],)).fetchone() == ("rejected", True, True)
    problem(Caller(api.admin.http, made["key"]).call("GET", "/me"), 401, "unauthenticated")


def test_an_operator_cannot_make_its_own_second(api: PublicApi, ann: Operator) -> None:
    made = asked(ann.caller.call("POST", "/admin/api-keys", {"name": "mine", "role": "admin", "owner": "another"}))
    puppet = Operator(Caller(api.admin.http, made["key"]), made["approval_id"])
    problem(puppet.decide("approve", made["approval_id"]), 401, "unauthenticated")
    assert problem(ann.decide("approve", made["approval_id"]), 403, "second_operator_required")["outcome"] == "not_done"


def test_a_revocation_takes_effect_when_it_is_approved(api: PublicApi, ann: Operator, ben: Operator) -> None:
    target = new_operator(api, "dan")
    assert target.caller.get("/me")["role"] == "admin"
    approval = asked(ann.caller.call("DELETE", f"/admin/api-keys/{target.id}"))
    assert (approval["action"], approval["subject"]) == ("api_key.revoke", f"api-keys/{target.id}")
    assert target.caller.get("/me")["role"] == "admin"
    assert ben.decide("approve", approval["approval_id"]).status_code == 200
    problem(target.caller.call("GET", "/me"), 401, "unauthenticated")


def test_a_rotation_begins_its_overlap_at_the_approval(api: PublicApi, ann: Operator, ben: Operator) -> None:
    approval = asked(ann.caller.call("POST", f"/admin/api-keys/{ann.id}/rotate", {"overlap_seconds": 0}))
    new = Caller(api.admin.http, approval["key"])
    problem(new.call("GET", "/me"), 401, "unauthenticated")
    assert ann.caller.get("/me")["principal_id"] == ann.id
    result = ben.decide("approve", approval["approval_id"]).json()["result"]
    assert new.get("/me")["principal_id"] == result["key_id"]
    problem(ann.caller.call("GET", "/me"), 401, "unauthenticated")


def test_a_key_that_changed_meanwhile_is_judged_at_the_approval(api: PublicApi, ann: Operator, ben: Operator) -> None:
    target = new_operator(api, "dan")
    approval = asked(ann.caller.call("POST", f"/admin/api-keys/{target.id}/rotate"))
    api.database.execute("update api_keys set revoked_at = clock_timestamp() where id = %s", (target.id,))
    assert problem(ben.decide("approve", approval["approval_id"]), 409, "invalid_state")["state"] == "revoked"
    problem(Caller(api.admin.http, approval["key"]).call("GET", "/me"), 401, "unauthenticated")
    again = ann.caller.call("POST", f"/admin/api-keys/{target.id}/rotate")
    assert problem(again, 409, "approval_pending")["approval_id"] == approval["approval_id"]


def test_unknown_keys_and_unusable_ends_are_refused_at_the_request(api: PublicApi, ann: Operator) -> None:
    missing = "01900000-0000-7000-8000-000000000001"
    problem(ann.caller.call("DELETE", f"/admin/api-keys/{missing}"), 404, "not_found")
    problem(ann.caller.call("POST", f"/admin/api-keys/{missing}/rotate"), 404, "not_found")
    past = {"name": "x", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}
    assert problem(ann.caller.call("POST", "/admin/api-keys", past), 422, "invalid")["outcome"] == "not_done"


def test_keys_of_tenants_need_no_second_operator(api: PublicApi, ann: Operator) -> None:
    tenant = new_tenant(api.admin)
    body = {"name": "x", "role": "member", "tenant_id": tenant.tenant_id}
    made = ann.caller.make("/admin/api-keys", body)
    assert Caller(api.admin.http, made["key"]).get("/me")["role"] == "member"
    assert ann.caller.call("POST", f"/admin/api-keys/{made['id']}/rotate").status_code == 201
    assert ann.caller.call("DELETE", f"/admin/api-keys/{made['id']}").status_code == 204
    assert tenant.call("POST", "/api-keys", {"name": "y", "role": "viewer"}).status_code == 201


def test_the_sweeper_ends_what_is_overdue_and_deletes_what_ended_long_ago(
    api: PublicApi, url: str, ann: Operator, ben: Operator
) -> None:
    overdue, waiting, ended = (
        asked(ann.caller.call("POST", "/admin/api-keys", {"name": "x", "role": "viewer"}))["approval_id"]
        for _ in range(3)
    )
    api.database.execute("update approvals set waits_until = clock_timestamp() where id = %s", (overdue,))
    ben.decide("reject", ended, {"reason": "no"})
    api.database.execute("update approvals set ended_at = ended_at - interval '2 hours' where id = %s", (ended,))

    async def sweep() -> None:
        database = connect_database(
            as_role(url, Role.WORKER), pool_size=1, reserve_size=1, lock_timeout_seconds=1,
            transaction_timeout_seconds=5, application="test",
        )  # fmt: skip
        try:
            await sweep_approvals(Context(database, Limits()), 3_600.0, 10)
        finally:
            await database.close()

    asyncio.run(sweep())
    found = {key: api.database.execute(STATES, (key,)).fetchone() for key in (overdue, waiting, ended)}
    assert found == {overdue: ("expired", True, True), waiting: ("pending", False, False), ended: None}
    (row,) = api.admin.every("/admin/audit", 500, subject=f"approvals/{overdue}", action="approval.expire")
    assert row["principal"]["kind"] == "worker"


def test_two_rotations_of_one_line_wait_for_one_approval(api: PublicApi, url: str, ann: Operator) -> None:
    assert asked(ann.caller.call("POST", f"/admin/api-keys/{ann.id}/rotate"))["state"] == "pending"
    problem(ann.caller.call("POST", f"/admin/api-keys/{ann.id}/rotate"), 409, "approval_pending")
    with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute(
            "insert into approvals (action, subject_id, requested_by, requested_role, requested_break_glass, waits_until)"
            " values ('api_key.rotate', %s, %s, 'admin', false, clock_timestamp())", (ann.id, ann.id),
        )  # fmt: skip
