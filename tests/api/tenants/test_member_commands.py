"""`berth member` and `berth invitation` call the routes of members, and show a token once; scopes of `berth key`."""

from __future__ import annotations

import json
import shlex

import pytest
from typer.testing import CliRunner, Result

from berth.cli.main import app
from tests.berth.scripted import Reply, ScriptedServer

ID = "01900000-0000-7000-8000-000000000002"
AT = "2026-01-01T00:00:00Z"
MEMBER = {
    "id": ID, "tenant_id": ID, "subject": "vic@acme", "role": "viewer", "name": "Vic", "invited_by": ID, "joined_at": AT,
}  # fmt: skip
INVITATION = {
    "id": ID, "tenant_id": ID, "role": "viewer", "name": "Vic", "created_by": ID, "created_at": AT, "expires_at": AT,
    "accepted_at": None, "accepted_by": None, "revoked_at": None,
}  # fmt: skip
PAGE = {"next_cursor": None}


def against(server: ScriptedServer, line: str, **settings: str) -> Result:
    settings = {"BERTH_API_URL": server.address, "BERTH_API_KEY": "berth_aaaaaaaa_key", "COLUMNS": "300", **settings}
    return CliRunner().invoke(app, shlex.split(line), env=settings)


@pytest.mark.parametrize(
    ("line", "reply", "method", "path", "body"),
    [
        (
            "member invite --role viewer --name Vic", Reply(status=201, body={**INVITATION, "token": "berth_inv_once"}),
            "POST", "/api/v1/invitations", {"role": "viewer", "name": "Vic"},
        ),
        ("member list", Reply(body={"items": [MEMBER], **PAGE}), "GET", "/api/v1/members", None),
        (f"member set-role {ID} admin", Reply(body=MEMBER), "PATCH", f"/api/v1/members/{ID}", {"role": "admin"}),
        (f"member remove {ID}", Reply(status=204), "DELETE", f"/api/v1/members/{ID}", None),
        ("invitation list", Reply(body={"items": [INVITATION], **PAGE}), "GET", "/api/v1/invitations", None),
        (f"invitation revoke {ID}", Reply(status=204), "DELETE", f"/api/v1/invitations/{ID}", None),
        ("invitation accept", Reply(body=MEMBER), "POST", "/api/v1/invitations/accept", {"token": "berth_inv_x"}),
    ],
)  # fmt: skip
def test_each_command_calls_its_route(line: str, reply: Reply, method: str, path: str, body: object) -> None:
    with ScriptedServer([reply]) as server:
        done = against(server, f"{line} --output json", BERTH_INVITATION_TOKEN="berth_inv_x")
        assert done.exit_code == 0, done.output
        assert [(asked.method, asked.path) for asked in server.asked] == [(method, path)]
        if body is not None:
            assert server.asked[0].body == body
        assert json.loads(done.output)
        assert ("berth_inv_once" in done.output) == line.startswith("member invite")


def test_an_acceptance_without_a_token_asks_for_one() -> None:
    with ScriptedServer([]) as server:
        done = against(server, "invitation accept", BERTH_INVITATION_TOKEN="")
        assert done.exit_code == 2
        assert "BERTH_INVITATION_TOKEN" in done.output
        assert server.asked == []


def test_scopes_of_a_key_are_sent() -> None:
    me = {"principal_id": ID, "role": "admin", "tenant": None, "limits": None}
    made = {
        "id": ID, "name": "k", "role": "viewer", "tenant_id": None, "prefix": "abcdefgh", "created_at": AT, "key": "once",
        "scopes": ["log:read", "usage:read"],
    }  # fmt: skip
    with ScriptedServer([Reply(body=me), Reply(status=201, body=made)]) as server:
        done = against(server, "key create k --role viewer --scope log:read --scope usage:read")
        assert done.exit_code == 0, done.output
        assert server.asked[1].body == {"name": "k", "role": "viewer", "scopes": ["log:read", "usage:read"]}
        assert "log:read usage:read" in done.output
