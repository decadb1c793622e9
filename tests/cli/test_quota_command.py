"""`berth tenant quota`: shows what a tenant uses, and sets limits first where it is asked to."""

from __future__ import annotations

import json
import shlex

import pytest
from typer.testing import CliRunner, Result

from berth.cli.main import app
from tests.berth.scripted import Reply, ScriptedServer

ID = "01900000-0000-7000-8000-000000000002"
TENANT = {
    "id": ID, "name": "acme", "state": "active", "gpus_limit": 4, "gpus_used": 1, "created_at": "2026-01-01T00:00:00Z",
    "row_version": 1,
}  # fmt: skip
QUOTAS = {
    "tenant_id": ID, "gpus_limit": 4, "gpus_used": 1,
    "quotas": [{"quota": "operations", "limit": 5, "used": 3}, {"quota": "webhooks", "limit": 20, "used": 0}],
}  # fmt: skip


def against(server: ScriptedServer, line: str) -> Result:
    settings = {"BERTH_API_URL": server.address, "BERTH_API_KEY": "berth_aaaaaaaa_key", "COLUMNS": "200"}
    return CliRunner().invoke(app, shlex.split(line), env=settings)


def test_it_shows_each_quota() -> None:
    with ScriptedServer([Reply(body=QUOTAS)]) as server:
        shown = against(server, f"tenant quota {ID}")
        assert [row.split() for row in shown.output.splitlines()] == [
            ["quota", "limit", "used"], ["gpus", "4", "1"], ["operations", "5", "3"], ["webhooks", "20", "0"],
        ]  # fmt: skip
        assert json.loads(against(server, f"tenant quota {ID} --output json").output) == QUOTAS
        assert {(asked.method, asked.path) for asked in server.asked} == {("GET", f"/api/v1/admin/tenants/{ID}/quota")}


def test_it_sets_limits_first() -> None:
    with ScriptedServer([Reply(body=TENANT), Reply(body=TENANT), Reply(body=QUOTAS)]) as server:
        done = against(server, f"tenant quota {ID} --gpus-limit 4 --limit operations=5 --limit webhooks=default")
        assert done.exit_code == 0, done.output
        assert [(asked.method, asked.body) for asked in server.asked[:2]] == [
            ("PUT", {"gpus_limit": 4}), ("PUT", {"limits": {"operations": 5, "webhooks": None}}),
        ]  # fmt: skip


@pytest.mark.parametrize("limit", ["operations", "operations=", "operations=-1", "operations=many"])
def test_a_limit_that_is_no_number_is_wrong_usage(limit: str) -> None:
    with ScriptedServer([Reply(body=QUOTAS)]) as server:
        refused = against(server, f"tenant quota {ID} --limit {limit}")
        assert refused.exit_code == 2
        assert server.asked == []
