"""What an admin begins while its role ends, in a process that still has its credential cached, is refused or revoked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.api.calling import Caller, new_tenant, problem
from tests.api.tenants.issuer import Issuer
from tests.api.tenants.joining import accept, joined
from tests.api.tenants.token_api import NEVER_SECONDS, TokenApi, token_api
from tests.support.paused_commits import in_order


@pytest.fixture(scope="module")
def api(url: str, issuer: Issuer) -> Iterator[TokenApi]:
    # Long enough that what is known stays known unless the change drops it.
    with token_api(url, issuer, credential_cache_seconds=NEVER_SECONDS) as api:
        yield api


@pytest.fixture(scope="module")
def database(url: str, api: TokenApi) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as database:
        yield database


def _removes(api: TokenApi, tenant: Caller, member: str) -> Any:
    return tenant.call("DELETE", f"/members/{member}")


def _demotes(api: TokenApi, tenant: Caller, member: str) -> Any:
    return tenant.call("PATCH", f"/members/{member}", {"role": "member"})


ENDS = [(_removes, "forbidden"), (_demotes, "role_required")]
ACTS: dict[str, Callable[[Caller, str], Any]] = {
    "invites": lambda caller, _: caller.call("POST", "/invitations", {"role": "admin"}),
    "sets a role": lambda caller, other: caller.call("PATCH", f"/members/{other}", {"role": "admin"}),
    "removes": lambda caller, other: caller.call("DELETE", f"/members/{other}"),
    "makes a key": lambda caller, _: caller.call("POST", "/api-keys", {"name": "k", "role": "admin"}),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("end", "code"), ENDS, ids=["removed", "demoted"])
def test_an_admin_whose_role_ends_before_its_act_commits_is_refused(
    api: TokenApi, database: psycopg.Connection[Any], end: Callable[..., Any], code: str, act: str
) -> None:
    """Its credential is cached, and the transaction that ends the role is about to commit."""
    tenant = new_tenant(api.admin)
    admin, member = joined(api, tenant, "admin")
    _, other = joined(api, tenant, "viewer")
    assert admin.get("/me")["role"] == "admin"
    ended, acted = in_order(database, lambda: end(api, tenant, member["id"]), lambda: ACTS[act](admin, other["id"]))
    assert ended.status_code in (200, 204)
    problem(acted, 403, code)
    assert [one["revoked_at"] for one in tenant.get("/invitations")["items"] if one["accepted_at"] is None] == []
    assert {one["id"]: one["role"] for one in tenant.get("/members")["items"]}[other["id"]] == "viewer"


@pytest.mark.parametrize(("end", "code"), ENDS, ids=["removed", "demoted"])
def test_an_invitation_that_commits_just_before_its_maker_loses_its_role_is_revoked(
    api: TokenApi, database: psycopg.Connection[Any], end: Callable[..., Any], code: str
) -> None:
    tenant = new_tenant(api.admin)
    admin, member = joined(api, tenant, "admin")
    made, ended = in_order(
        database,
        lambda: admin.call("POST", "/invitations", {"role": "admin"}),
        lambda: end(api, tenant, member["id"]),
    )
    assert (made.status_code, ended.status_code in (200, 204)) == (201, True)
    problem(accept(admin, made.json()["token"]), 401, "invitation_invalid")


def test_two_admins_that_remove_each_other_leave_one(api: TokenApi, database: psycopg.Connection[Any]) -> None:
    tenant = new_tenant(api.admin)
    (first, one), (second, other) = joined(api, tenant, "admin"), joined(api, tenant, "admin")
    assert [first.get("/me")["role"], second.get("/me")["role"]] == ["admin", "admin"]
    removed_, refused = in_order(
        database,
        lambda: first.call("DELETE", f"/members/{other['id']}"),
        lambda: second.call("DELETE", f"/members/{one['id']}"),
    )
    assert removed_.status_code == 204
    problem(refused, 403, "forbidden")
    assert [left["id"] for left in tenant.get("/members")["items"]] == [one["id"]]
