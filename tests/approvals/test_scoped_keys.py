"""Four eyes and scopes of keys: neither the requester nor the approver makes a key that may do more than its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, problem
from tests.approvals.operators import Operator, four_eyes_api, new_operator
from tests.databases import copied_database
from tests.support.public_api import PublicApi

APPROVING = "{admin-approvals:write,admin-api-keys:write,admin-nodes:read}"


@pytest.fixture(scope="module")
def api(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublicApi]:
    with (
        copied_database(postgres_server, migrated_template) as url,
        four_eyes_api(url, tmp_path_factory.mktemp("authority")) as running,
    ):
        yield running


def scoped(api: PublicApi, owner: str) -> Operator:
    """An operator whose key has the scopes to request and to approve, and one more."""
    operator = new_operator(api, owner)
    api.database.execute("update api_keys set scopes = %s where id = %s", (APPROVING, operator.id))
    return operator


def test_a_requester_with_scopes_asks_for_no_wider_key(api: PublicApi) -> None:
    ann = scoped(api, "ann")
    for scopes in ({}, {"scopes": ["admin-nodes:write"]}):
        problem(
            ann.caller.call("POST", "/admin/api-keys", {"name": "k", "role": "admin", **scopes}), 403, "scopes_exceeded"
        )
    whole = new_operator(api, "cleo")
    problem(ann.caller.call("POST", f"/admin/api-keys/{whole.id}/rotate", {}), 403, "scopes_exceeded")
    assert api.database.execute("select count(*) from approvals").fetchone() == (0,)


def test_an_approver_with_scopes_makes_no_wider_key(api: PublicApi) -> None:
    cleo, ben = new_operator(api, "cleo"), scoped(api, "ben")
    made = cleo.caller.call("POST", "/admin/api-keys", {"name": "k", "role": "admin"}).json()
    problem(ben.decide("approve", made["approval_id"]), 403, "scopes_exceeded")
    problem(Caller(api.admin.http, made["key"]).call("GET", "/me"), 401, "unauthenticated")
    rotation = cleo.caller.call("POST", f"/admin/api-keys/{cleo.id}/rotate", {}).json()
    problem(ben.decide("approve", rotation["approval_id"]), 403, "scopes_exceeded")
    narrow = cleo.caller.call("POST", "/admin/api-keys", {"name": "k", "role": "fleet", "scopes": ["admin-nodes:read"]})
    approval = narrow.json()
    assert approval["parameters"]["scopes"] == ["admin-nodes:read"]
    assert ben.decide("approve", approval["approval_id"]).status_code == 200
    assert Caller(api.admin.http, approval["key"]).get("/me")["scopes"] == ["admin-nodes:read"]
