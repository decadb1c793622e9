"""`berth approvals`, and what commands print when a second operator must approve what they request."""

from __future__ import annotations

import json
import shlex

import pytest
from typer.testing import CliRunner, Result

from berth.cli.main import app
from berth.client import ApprovalRequested, Client
from tests.berth.scripted import LOST, Reply, ScriptedServer

ID, KEY_ID = "01900000-0000-7000-8000-000000000002", "01900000-0000-7000-8000-000000000003"
AT = "2026-01-01T00:00:00Z"
APPROVALS = "/api/v1/admin/approvals"
PERSON = {"principal_id": KEY_ID, "role": "admin", "owner": "ann", "break_glass": False}
APPROVAL = {
    "approval_id": ID, "action": "api_key.revoke", "subject": f"api-keys/{KEY_ID}", "parameters": {}, "state": "pending",
    "roles_required": ["admin"], "requested_by": PERSON, "requested_at": AT, "decided_by": None, "decision_reason": None,
    "ended_at": None, "result": None, "waits_for": "approval", "waits_since": AT, "waits_until": AT,
}  # fmt: skip
APPROVED = {
    **APPROVAL, "state": "approved", "decided_by": {**PERSON, "owner": "ben"}, "ended_at": AT, "waits_for": None,
    "waits_since": None, "waits_until": None, "result": {"key_id": KEY_ID},
}  # fmt: skip
OPERATOR = Reply(body={"principal_id": ID, "role": "admin", "tenant": None, "limits": None})


def against(server: ScriptedServer, line: str) -> Result:
    settings = {"BERTH_API_URL": server.address, "BERTH_API_KEY": "berth_aaaaaaaa_key", "COLUMNS": "300"}
    return CliRunner().invoke(app, shlex.split(line), env=settings)


@pytest.mark.parametrize(
    ("line", "method", "path", "body"),
    [
        (f"approve {ID} --reason checked", "POST", f"/{ID}/approve", {"reason": "checked"}),
        (f"reject {ID} --reason no", "POST", f"/{ID}/reject", {"reason": "no"}),
        (f"withdraw {ID}", "POST", f"/{ID}/withdraw", {}),
        (f"show {ID}", "GET", f"/{ID}", None),
    ],
)
def test_each_command_calls_its_route(line: str, method: str, path: str, body: object) -> None:
    with ScriptedServer([Reply(body=APPROVED)]) as server:
        done = against(server, f"approvals {line}")
        assert done.exit_code == 0, done.output
        (asked,) = server.asked
        assert (asked.method, asked.path, asked.body or None) == (method, APPROVALS + path, body or None)
        for shown in ("approved", "ann", "ben", KEY_ID):
            assert shown in done.output


def test_the_list_filters_by_state() -> None:
    with ScriptedServer([Reply(body={"items": [APPROVAL], "next_cursor": None})]) as server:
        done = against(server, "approvals list --state pending")
        assert "api_key.revoke" in done.output
        assert server.asked[0].path.partition("?")[0] == APPROVALS
        assert "state=pending" in server.asked[0].path


@pytest.mark.parametrize(
    ("line", "first"),
    [
        (f"force-cleanup {KEY_ID} --runtime-verified-absent --reason gone", []),
        (f"key revoke {KEY_ID}", [OPERATOR]),
        (f"key rotate {KEY_ID}", [OPERATOR]),
        ("key create x --role admin", [OPERATOR]),
    ],
)
def test_a_recorded_request_is_shown_and_is_no_failure(line: str, first: list[Reply]) -> None:
    requested = Reply(202, {**APPROVAL, "key": "berth_shown_once"})
    with ScriptedServer([*first, requested]) as server:
        done = against(server, line)
        assert done.exit_code == 0, done.output
        assert f"berth approvals approve {ID}" in done.stderr
        assert "berth_shown_once" in done.stdout
        assert "revoked" not in done.stdout
    with ScriptedServer([*first, requested]) as server:
        assert json.loads(against(server, f"{line} --output json").stdout)["approval_id"] == ID


def test_the_client_raises_what_was_recorded_also_after_a_lost_response() -> None:
    requested = Reply(202, APPROVAL)
    for replies in ([requested], [LOST, requested]):
        with ScriptedServer(replies) as server, Client(server.address, "berth_aaaaaaaa_key") as client:
            with pytest.raises(ApprovalRequested) as raised:
                client.force_cleanup(KEY_ID, runtime_verified_absent=True, reason="gone")  # type: ignore[arg-type]
            assert (str(raised.value.approval.approval_id), raised.value.outcome) == (ID, "not_done")
            assert len(set(server.keys)) == 1
            assert len(server.asked) == len(replies)
