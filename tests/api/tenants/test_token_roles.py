"""Roles of users: a claim of the token gives the role, which every route judges as it judges that of a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.http.oidc.oidc_settings import OidcSettings
from orchestrator.http.oidc.token_principals import NO_ROLE, principal_id
from tests.allocations.seeding import write_symmetric_keys
from tests.api.calling import fresh, problem, ssh_key
from tests.api.role_matrix import COLUMNS, OPERATOR_ROLES, TENANT_ROLES, differences
from tests.api.tenants.issuer import ADMIN_ROLE, Issuer
from tests.api.tenants.token_api import TokenApi, token_api
from tests.support.waiting import wait_for

ROLES = {f"gpu-{role}": role for role in TENANT_ROLES}
OPERATORS = {f"ops-{role}": role for role in OPERATOR_ROLES if role != "admin"}


@pytest.fixture(scope="module")
def api(url: str, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenApi]:
    """Roles come from a claim; a tenant's token without a known one is refused."""
    keys = write_symmetric_keys(tmp_path_factory.mktemp("keys") / "webhook.keys")
    with token_api(url, issuer, oidc_roles=ROLES, oidc_operator_roles=OPERATORS, webhook_key_file=keys) as api:
        yield api


def role_of(api: TokenApi, named: Any) -> Any:
    """The role of a tenant's token whose claim says this."""
    return api.with_token(api.tenant_token(berth_role=named)).get("/me")["role"]


# Every role of a key: tests/security/test_roles.py.
@pytest.mark.quick("tenant-viewer", "operator-support")
@pytest.mark.parametrize(("kind", "role"), COLUMNS)
def test_every_route_with_a_token_of_this_role_is_as_the_matrix_says(api: TokenApi, kind: str, role: str) -> None:
    if kind == "tenant":
        token = api.tenant_token(berth_role=[f"gpu-{role}", "unrelated"])
    else:
        token = api.issuer.token("first", berth_role=ADMIN_ROLE if role == "admin" else f"ops-{role}")
    caller = api.with_token(token)
    assert caller.get("/me")["role"] == role
    assert differences(caller, kind, role) == []


@pytest.mark.parametrize(
    "named", [None, "unrelated", [], ["unrelated"], {"gpu-admin": True}, 7, [7, None, ["gpu-admin"]]]
)
def test_without_a_known_role_each_route_refuses(api: TokenApi, named: Any) -> None:
    caller = api.with_token(api.tenant_token(berth_role=named))
    for path in ("/me", "/allocations", "/usage"):
        refused = problem(caller.call("GET", path), 403, "role_required")
        assert (refused["role"], "viewer" in refused["roles_required"]) == (NO_ROLE, True)
    problem(caller.call("POST", "/ssh-keys", {}), 403, "role_required")
    problem(caller.call("GET", "/admin/tenants"), 403, "forbidden")


def test_of_several_roles_of_a_tenant_the_one_that_may_most_counts(api: TokenApi) -> None:
    assert role_of(api, ["gpu-viewer", "gpu-member", "gpu-billing"]) == "member"
    assert role_of(api, ["gpu-billing", "gpu-viewer"]) == "viewer"
    assert role_of(api, ["gpu-billing", "gpu-admin"]) == "admin"
    assert role_of(api, "gpu-billing") == "billing"


def test_several_roles_of_an_operator_are_refused_unless_one_includes_the_others(api: TokenApi) -> None:
    def told(*names: str) -> Any:
        return api.with_token(api.issuer.token("first", berth_role=list(names)))

    assert told("ops-viewer", "ops-fleet").get("/me")["role"] == "fleet"
    assert told("ops-fleet", "ops-support", ADMIN_ROLE).get("/me")["role"] == "admin"
    assert (
        "fleet, support" in problem(told("ops-fleet", "ops-support").call("GET", "/me"), 401, "token_invalid")["detail"]
    )


def test_a_role_of_operators_and_a_tenant_at_once_are_refused(api: TokenApi) -> None:
    caller = api.with_token(api.tenant_token(berth_role=["gpu-viewer", "ops-viewer"]))
    assert "one of them" in problem(caller.call("GET", "/me"), 401, "token_invalid")["detail"]


def test_a_tenants_role_makes_no_operator(api: TokenApi) -> None:
    caller = api.with_token(api.issuer.token("first", berth_role="gpu-admin"))
    assert "neither" in problem(caller.call("GET", "/me"), 401, "token_invalid")["detail"]


def test_the_default_role_is_that_of_tokens_without_a_known_one(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer, oidc_roles=ROLES, oidc_default_role="viewer") as api:
        assert [role_of(api, named) for named in (None, "unrelated", "gpu-member")] == ["viewer", "viewer", "member"]
        caller = api.with_token(api.tenant_token(berth_role="unrelated"))
        problem(caller.call("POST", "/ssh-keys", {}), 403, "role_required")


def test_without_a_mapping_every_tenants_token_is_an_admins(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer) as api:
        assert [role_of(api, named) for named in (None, "gpu-viewer")] == ["admin", "admin"]


@pytest.mark.parametrize(
    "settings",
    [{"oidc_roles": {"x": "root"}}, {"oidc_operator_roles": {"x": "member"}}, {"oidc_default_role": "viewer"}],
)
def test_an_unusable_mapping_is_refused_at_start(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OidcSettings(**settings)


def test_the_audit_shows_a_users_subject_and_role(api: TokenApi, issuer: Issuer) -> None:
    user = api.with_token(api.tenant_token(sub="ann@acme", berth_role="gpu-admin"))
    user.make("/api-keys", {"name": "ci", "role": "viewer"})
    viewer = api.with_token(api.tenant_token(sub="vic@acme", berth_role="gpu-viewer"))
    problem(viewer.call("POST", "/api-keys", {"name": "x", "role": "viewer"}), 403, "role_required")

    def rows(subject: str) -> list[Any]:
        found = api.admin.every("/admin/audit", 500, principal=str(principal_id(issuer.url, subject)))
        return [row for row in found if row["action"] == "api_key.create"]

    (made,) = rows("ann@acme")
    assert (made["principal"]["role"], made["detail"]["user"], made["detail"]["name"]) == ("admin", "ann@acme", "ci")
    wait_for(lambda: rows("vic@acme"), "the queued row of the refusal")
    (refused,) = rows("vic@acme")
    assert (refused["principal"]["role"], refused["detail"]["user"], refused["code"]) == (
        "viewer", "vic@acme", "role_required",
    )  # fmt: skip
    api.tenant.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})
    key_row = api.admin.every("/admin/audit", 500, tenant_id=api.tenant.tenant_id, action="ssh_key.create")[-1]
    assert "user" not in key_row["detail"]


def test_a_token_makes_and_enables_no_webhook_of_the_operators(api: TokenApi) -> None:
    """It receives every event, and only a key that is revoked or expires ends it."""
    body = {"url": f"https://{fresh('hook')}.example/in", "types": ["provisioning.requested"]}
    operator = api.with_token(api.admin_token())
    problem(operator.call("POST", "/webhooks", body), 403, "forbidden")
    made = api.admin.make("/webhooks", body)
    for state, status in (("disabled", 200), ("enabled", 403)):
        assert operator.call("PATCH", f"/webhooks/{made['id']}", {"state": state}).status_code == status
    assert api.admin.call("PATCH", f"/webhooks/{made['id']}", {"state": "enabled"}).status_code == 200
    of_tenant = api.with_token(api.tenant_token(berth_role="gpu-admin"))
    assert of_tenant.call("POST", "/webhooks", body).status_code == 201
