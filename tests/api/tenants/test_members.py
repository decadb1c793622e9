"""Members of tenants: invited by an admin, joined by a user whose token names no tenant, changed and removed at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from orchestrator.http.metrics import FAILED_ATTEMPTS
from orchestrator.http.oidc.token_principals import principal_id
from tests.api.calling import Caller, fresh, new_tenant, problem
from tests.api.tenants.issuer import Issuer
from tests.api.tenants.joining import accept, invited, joined, user
from tests.api.tenants.token_api import NEVER_SECONDS, TokenApi, token_api

UNKNOWN_ID = "0197f3a0-0000-7000-8000-000000000001"


@pytest.fixture(scope="module")
def api(url: str, issuer: Issuer) -> Iterator[TokenApi]:
    # Long enough that what is known stays known unless the change drops it.
    with token_api(url, issuer, credential_cache_seconds=NEVER_SECONDS) as api:
        yield api


@pytest.fixture(scope="module")
def database(url: str, api: TokenApi) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as database:
        yield database


def test_a_user_becomes_a_member_with_the_role_of_the_invitation(api: TokenApi) -> None:
    tenant, subject = new_tenant(api.admin), fresh("user")
    caller = user(api, subject)
    problem(caller.call("GET", "/me"), 401, "token_invalid")
    made = tenant.call("POST", "/invitations", {"role": "viewer", "name": "Vic"})
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    invitation = made.json()
    answer = accept(caller, invitation["token"])
    assert answer.status_code == 200, answer.text
    member = answer.json()
    assert member["id"] == str(principal_id(api.issuer.url, subject))
    assert (member["subject"], member["role"], member["name"]) == (subject, "viewer", "Vic")
    assert member["invited_by"] == tenant.get("/me")["principal_id"]
    account = caller.get("/me")
    assert (account["role"], account["tenant"]["id"], account["scopes"]) == ("viewer", tenant.tenant_id, None)
    problem(caller.call("POST", "/ssh-keys", {}), 403, "role_required")
    assert tenant.get("/members")["items"] == [member]
    (listed,) = tenant.get("/invitations")["items"]
    assert "token" not in listed
    assert listed["accepted_by"] == member["id"]
    rows = {row["action"]: row for row in tenant.get("/audit")["items"]}
    assert member["id"] in str(rows["invitation.accept"]["principal"])
    assert rows["invitation.accept"]["detail"]["user"] == subject


def test_a_repeated_acceptance_returns_the_same_member_and_another_user_is_refused(api: TokenApi) -> None:
    tenant, caller = new_tenant(api.admin), user(api)
    token = invited(tenant)["token"]
    first, again = accept(caller, token), accept(caller, token)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    problem(accept(user(api), token), 401, "invitation_invalid")
    assert len(tenant.get("/members")["items"]) == 1


def test_a_used_revoked_expired_or_unknown_token_has_one_answer(
    api: TokenApi, database: psycopg.Connection[Any]
) -> None:
    tenant = new_tenant(api.admin)
    used, revoked, expired = invited(tenant), invited(tenant), invited(tenant)
    suspended = new_tenant(api.admin)
    of_suspended = invited(suspended)
    assert accept(user(api), used["token"]).status_code == 200
    assert tenant.call("DELETE", f"/invitations/{revoked['id']}").status_code == 204
    database.execute("update tenant_invitations set expires_at = clock_timestamp() where id = %s", (expired["id"],))
    api.admin.call("PATCH", f"/admin/tenants/{suspended.tenant_id}", {"state": "suspended"})
    tokens = [used["token"], revoked["token"], expired["token"], of_suspended["token"], "berth_inv_unknown"]
    answers = [problem(accept(user(api), token), 401, "invitation_invalid") for token in tokens]
    assert len({answer["detail"] for answer in answers}) == 1
    assert len(tenant.get("/members")["items"]) == 1
    api.admin.call("PATCH", f"/admin/tenants/{suspended.tenant_id}", {"state": "active"})
    assert accept(user(api), of_suspended["token"]).status_code == 200


def test_no_api_key_no_operator_and_no_token_with_a_tenant_accepts(api: TokenApi) -> None:
    tenant = new_tenant(api.admin)
    token = invited(tenant)["token"]
    for caller in (tenant, api.admin, api.with_token(api.tenant_token()), api.with_token(api.admin_token())):
        problem(accept(caller, token), 403, "forbidden")
    problem(accept(Caller(api.admin.http, "berth_unknown"), token), 401, "unauthenticated")
    problem(accept(Caller(api.admin.http, "a.b.c"), token), 401, "token_invalid")
    assert tenant.get("/members")["items"] == []
    assert accept(user(api), token).status_code == 200


def test_a_user_is_a_member_of_one_tenant(api: TokenApi) -> None:
    first, second = new_tenant(api.admin), new_tenant(api.admin)
    caller, member = joined(api, first)
    token = invited(second, "admin")["token"]
    problem(accept(caller, token), 409, "already_member")
    problem(accept(caller, invited(first, "admin")["token"]), 409, "already_member")
    assert caller.get("/me")["role"] == "member"
    assert first.call("DELETE", f"/members/{member['id']}").status_code == 204
    assert accept(caller, token).status_code == 200
    assert caller.get("/me")["tenant"]["id"] == second.tenant_id


def test_a_claim_of_a_tenant_decides_over_a_membership(api: TokenApi) -> None:
    tenant, subject = new_tenant(api.admin), fresh("user")
    joined(api, tenant, "viewer", subject)
    claimed = api.with_token(api.tenant_token(sub=subject))
    assert claimed.get("/me")["tenant"]["id"] == api.tenant.tenant_id
    assert claimed.get("/me")["role"] == "admin"


def test_a_changed_role_and_a_removal_take_effect_at_once_here(api: TokenApi) -> None:
    tenant = new_tenant(api.admin)
    caller, member = joined(api, tenant, "viewer")
    path = f"/members/{member['id']}"
    assert caller.get("/me")["role"] == "viewer"
    assert tenant.call("PATCH", path, {"role": "admin"}).json()["role"] == "admin"
    assert caller.get("/me")["role"] == "admin"
    assert caller.call("DELETE", path).status_code == 204, "the last admin removes itself; the API keys remain"
    problem(caller.call("GET", "/me"), 401, "token_invalid")
    assert tenant.get("/members")["items"] == []
    problem(tenant.call("DELETE", path), 404, "not_found")
    problem(tenant.call("PATCH", path, {"role": "viewer"}), 404, "not_found")


def demoted(tenant: Caller, member: str) -> None:
    assert tenant.call("PATCH", f"/members/{member}", {"role": "member"}).status_code == 200


def removed(tenant: Caller, member: str) -> None:
    assert tenant.call("DELETE", f"/members/{member}").status_code == 204


@pytest.mark.parametrize("change", [demoted, removed])
def test_what_an_admin_has_invited_ends_with_its_role(api: TokenApi, change: Callable[[Caller, str], None]) -> None:
    tenant = new_tenant(api.admin)
    admin, member = joined(api, tenant, "admin")
    own, others = invited(admin, "admin"), invited(tenant, "viewer")
    change(tenant, member["id"])
    problem(accept(user(api), own["token"]), 401, "invitation_invalid")
    if change is removed:
        problem(accept(admin, own["token"]), 401, "invitation_invalid")
    assert accept(user(api), others["token"]).status_code == 200, "what others have invited stays open"


def test_an_admin_that_stays_one_keeps_its_invitations(api: TokenApi) -> None:
    tenant = new_tenant(api.admin)
    admin, member = joined(api, tenant, "admin")
    invitation = invited(admin, "viewer")
    assert tenant.call("PATCH", f"/members/{member['id']}", {"role": "admin"}).status_code == 200
    assert accept(user(api), invitation["token"]).status_code == 200


def test_another_process_follows_within_the_time_of_its_cache(api: TokenApi, url: str) -> None:
    with token_api(url, api.issuer, credential_cache_seconds=0.0) as other:
        tenant = new_tenant(api.admin)
        caller, member = joined(api, tenant, "viewer")
        elsewhere = Caller(other.admin.http, caller.key)
        assert elsewhere.get("/me")["role"] == "viewer"
        tenant.call("PATCH", f"/members/{member['id']}", {"role": "billing"})
        assert elsewhere.get("/me")["role"] == "billing"
        tenant.call("DELETE", f"/members/{member['id']}")
        problem(elsewhere.call("GET", "/me"), 401, "token_invalid")


def test_only_admins_of_the_tenant_manage_members(api: TokenApi) -> None:
    tenant, other = new_tenant(api.admin), new_tenant(api.admin)
    member, shown = joined(api, tenant)
    invitation = invited(tenant)
    for method, path, body in (
        ("POST", "/invitations", {"role": "viewer"}), ("GET", "/invitations", None), ("GET", "/members", None),
        ("DELETE", f"/invitations/{invitation['id']}", None), ("DELETE", f"/members/{shown['id']}", None),
        ("PATCH", f"/members/{shown['id']}", {"role": "admin"}),
    ):  # fmt: skip
        problem(member.call(method, path, body), 403, "role_required")
    problem(other.call("DELETE", f"/invitations/{invitation['id']}"), 404, "not_found")
    problem(other.call("DELETE", f"/members/{shown['id']}"), 404, "not_found")
    problem(other.call("PATCH", f"/members/{shown['id']}", {"role": "admin"}), 404, "not_found")
    assert other.get("/members")["items"] == other.get("/invitations")["items"] == []
    assert member.get("/me")["role"] == "member"


def test_a_key_with_scopes_invites_no_member_and_raises_no_role(api: TokenApi) -> None:
    tenant = new_tenant(api.admin)
    _, member = joined(api, tenant)
    made = tenant.make("/api-keys", {"name": "m", "role": "admin", "scopes": ["members:write"]})
    scoped = Caller(api.admin.http, made["key"], tenant.tenant_id)
    problem(scoped.call("POST", "/invitations", {"role": "viewer"}), 403, "scopes_exceeded")
    problem(scoped.call("PATCH", f"/members/{member['id']}", {"role": "admin"}), 403, "scopes_exceeded")
    assert scoped.call("DELETE", f"/members/{member['id']}").status_code == 204


def test_a_revocation_twice_and_of_a_used_invitation_changes_nothing(api: TokenApi) -> None:
    tenant = new_tenant(api.admin)
    invitation = invited(tenant)
    caller = user(api)
    assert accept(caller, invitation["token"]).status_code == 200
    for _ in range(2):
        assert tenant.call("DELETE", f"/invitations/{invitation['id']}").status_code == 204
    assert caller.get("/me")["role"] == "member"
    assert tenant.get("/invitations")["items"][0]["revoked_at"] is None
    problem(tenant.call("DELETE", f"/invitations/{UNKNOWN_ID}"), 404, "not_found")


def test_members_and_open_invitations_are_bounded_together(api: TokenApi) -> None:
    tenant = new_tenant(api.admin)
    path = f"/admin/tenants/{tenant.tenant_id}/quota"
    assert api.admin.call("PUT", path, {"limits": {"members": 2}}).status_code == 200
    joined(api, tenant)
    waiting = invited(tenant)
    document = problem(tenant.call("POST", "/invitations", {"role": "viewer"}), 409, "quota_exceeded")
    assert (document["quota"], document["limit"], document["used"]) == ("members", 2, 2)
    assert {found["quota"]: found["used"] for found in api.admin.get(path)["quotas"]}["members"] == 2
    assert accept(user(api), waiting["token"]).status_code == 200, "an invitation keeps its place"
    assert tenant.call("POST", "/invitations", {"role": "viewer"}).status_code == 409


@pytest.mark.parametrize(
    "body",
    [
        {}, {"role": "owner"}, {"role": "viewer", "expires_in_seconds": 59},
        {"role": "viewer", "expires_in_seconds": 30 * 86_400 + 1}, {"role": "viewer", "name": ""},
        {"role": "viewer", "name": "a\u202eb"}, {"role": "viewer", "extra": 1},
    ],
)  # fmt: skip
def test_an_unusable_invitation_is_refused(api: TokenApi, body: Any) -> None:
    tenant = new_tenant(api.admin)
    problem(tenant.call("POST", "/invitations", body), 422, "invalid")
    assert tenant.get("/invitations")["items"] == []


def test_a_deleted_tenant_has_no_members_and_no_invitations(api: TokenApi, database: psycopg.Connection[Any]) -> None:
    tenant = new_tenant(api.admin)
    caller, _ = joined(api, tenant)
    open_one = invited(tenant)
    assert caller.get("/me")["role"] == "member"
    assert api.admin.call("DELETE", f"/admin/tenants/{tenant.tenant_id}").status_code == 204
    problem(caller.call("GET", "/me"), 401, "token_invalid")
    problem(accept(caller, open_one["token"]), 401, "invitation_invalid")
    for table in ("select count(*) from tenant_members where tenant_id = %s",
                  "select count(*) from tenant_invitations where tenant_id = %s"):  # fmt: skip
        assert database.execute(table, (tenant.tenant_id,)).fetchone() == (0,)


def test_members_of_a_suspended_tenant_are_refused(api: TokenApi) -> None:
    tenant = new_tenant(api.admin)
    caller, _ = joined(api, tenant)
    assert caller.get("/me")["role"] == "member"
    path = f"/admin/tenants/{tenant.tenant_id}"
    api.admin.call("PATCH", path, {"state": "suspended"})
    problem(caller.call("GET", "/me"), 401, "tenant_not_active")
    api.admin.call("PATCH", path, {"state": "active"})
    assert caller.get("/me")["role"] == "member"


def test_of_many_users_with_one_token_one_joins(api: TokenApi) -> None:
    tenant = new_tenant(api.admin)
    token, callers = invited(tenant)["token"], [user(api) for _ in range(6)]
    ready = threading.Barrier(len(callers))

    def race(caller: Caller) -> int:
        ready.wait()
        status: int = accept(caller, token).status_code
        return status

    with ThreadPoolExecutor(len(callers)) as pool:
        statuses = sorted(pool.map(race, callers))
    assert statuses == [200, *[401] * 5]
    assert len(tenant.get("/members")["items"]) == 1


def test_of_two_tenants_that_one_user_joins_at_once_one_has_it(api: TokenApi) -> None:
    tenants = [new_tenant(api.admin) for _ in range(2)]
    tokens, caller = [invited(tenant)["token"] for tenant in tenants], user(api)
    ready = threading.Barrier(2)

    def race(token: str) -> int:
        ready.wait()
        status: int = accept(caller, token).status_code
        return status

    with ThreadPoolExecutor(2) as pool:
        statuses = sorted(pool.map(race, tokens))
    assert statuses == [200, 409]
    assert sum(len(tenant.get("/members")["items"]) for tenant in tenants) == 1


def test_a_wrong_token_is_a_failed_attempt_of_its_source(api: TokenApi) -> None:
    caller, token = user(api), invited(new_tenant(api.admin))["token"]
    counted = FAILED_ATTEMPTS.labels(result="looked_up")
    before = counted._value.get()
    problem(accept(caller, "berth_inv_guess"), 401, "invitation_invalid")
    assert counted._value.get() == before + 1
    assert accept(caller, token).status_code == 200
    assert counted._value.get() == before + 1


def test_no_token_is_stored(api: TokenApi, database: psycopg.Connection[Any]) -> None:
    tenant = new_tenant(api.admin)
    first = tenant.call("POST", "/invitations", {"role": "viewer"}, key="invite-1")
    again = tenant.call("POST", "/invitations", {"role": "viewer"}, key="invite-1")
    token = first.json()["token"]
    assert again.json()["token"] == token
    stored = database.execute(
        "select string_agg(body::text, '') from operations where scope = %s", (tenant.tenant_id,)
    ).fetchone()
    assert stored is not None
    assert token not in stored[0]


def test_old_ended_invitations_are_deleted(api: TokenApi, database: psycopg.Connection[Any]) -> None:
    tenant = new_tenant(api.admin)
    old, recent, open_one = invited(tenant), invited(tenant), invited(tenant)
    for ended in (old, recent):
        assert tenant.call("DELETE", f"/invitations/{ended['id']}").status_code == 204
    database.execute(
        "update tenant_invitations set revoked_at = revoked_at - interval '31 days' where id = %s", (old["id"],)
    )
    made = invited(tenant)
    assert [found["id"] for found in tenant.get("/invitations")["items"]] == [recent["id"], open_one["id"], made["id"]]
