"""`berth key` calls the routes of operators with an operator's key, and those of a tenant with a tenant's."""

from __future__ import annotations

import json
import shlex

import pytest
from typer.testing import CliRunner, Result

from berth.cli.main import app
from tests.berth.scripted import Reply, ScriptedServer

ID = "01900000-0000-7000-8000-000000000002"
AT = "2026-01-01T00:00:00Z"
ALL, OWN = "/api/v1/admin/api-keys", "/api/v1/api-keys"
OPERATOR = {"principal_id": ID, "role": "admin", "tenant": None, "limits": None}
LIMITS: dict[str, object] = {
    "gpus_limit": None, "gpus_used": 0, "subscribers_max": 1, "hold_seconds_max": 1, "webhooks_max": 1,
    "window_seconds_max": 60, "quotas": [],
}  # fmt: skip
TENANT = {**OPERATOR, "tenant": {"id": ID, "name": "acme", "state": "active"}, "limits": LIMITS}
CALLERS = [(OPERATOR, ALL), (TENANT, OWN)]
KEY = {"id": ID, "name": "k", "role": "viewer", "tenant_id": None, "prefix": "abcdefgh", "created_at": AT}
NEW = {**KEY, "key": "shown-once"}
LISTED = {**KEY, "revoked_at": None, "last_used_at": "2026-02-02T00:00:00Z", "replaced_by": None}
ROTATED = {**NEW, "replaces": ID, "replaced_expires_at": AT}


def against(server: ScriptedServer, line: str) -> Result:
    settings = {"BERTH_API_URL": server.address, "BERTH_API_KEY": "berth_aaaaaaaa_key", "COLUMNS": "300"}
    return CliRunner().invoke(app, shlex.split(line), env=settings)


@pytest.mark.parametrize(("me", "path"), CALLERS)
def test_each_command_calls_the_routes_of_its_caller(me: object, path: str) -> None:
    for line, reply, method, suffix in (
        ("key create k --role viewer --owner ci", Reply(status=201, body=NEW), "POST", ""),
        ("key list", Reply(body={"items": [LISTED], "next_cursor": None}), "GET", ""),
        (f"key rotate {ID} --overlap-seconds 60", Reply(status=201, body=ROTATED), "POST", f"/{ID}/rotate"),
        (f"key revoke {ID}", Reply(status=204), "DELETE", f"/{ID}"),
    ):
        with ScriptedServer([Reply(body=me), reply]) as server:
            done = against(server, line)
            assert done.exit_code == 0, done.output
            assert [(asked.method, asked.path) for asked in server.asked] == [
                ("GET", "/api/v1/me"), (method, f"{path}{suffix}"),
            ]  # fmt: skip


def test_what_is_sent_and_shown() -> None:
    with ScriptedServer([Reply(body=TENANT), Reply(status=201, body=ROTATED)]) as server:
        done = against(server, f"key rotate {ID} --overlap-seconds 60 --expires-at 2100-01-01T00:00:00Z --output json")
        assert json.loads(done.output)["key"] == "shown-once"
        assert server.asked[1].body == {"overlap_seconds": 60, "expires_at": "2100-01-01T00:00:00+00:00"}
    with ScriptedServer([Reply(body=TENANT), Reply(body={"items": [LISTED], "next_cursor": None})]) as server:
        shown = against(server, "key list").output
        assert "2026-02-02" in shown


def test_a_role_that_does_not_fit_is_wrong_usage() -> None:
    with ScriptedServer([Reply(body=TENANT)]) as server:
        assert against(server, "key create k --role fleet").exit_code == 2
        assert against(server, "key create k --role fleet --tenant acme").exit_code == 2
        assert against(server, "key create k").exit_code == 2
        assert {asked.path for asked in server.asked} == {"/api/v1/me"}
    with ScriptedServer([Reply(body=OPERATOR)]) as server:
        assert against(server, "key create k --role member").exit_code == 2
        assert {asked.path for asked in server.asked} == {"/api/v1/me"}


def test_a_named_tenant_needs_an_operator() -> None:
    with ScriptedServer([Reply(status=201, body=NEW)]) as server:
        assert against(server, f"key create k --tenant {ID}").exit_code == 0
        assert [asked.path for asked in server.asked] == [ALL]
        assert server.asked[0].body == {"name": "k", "role": "admin", "tenant_id": ID}
