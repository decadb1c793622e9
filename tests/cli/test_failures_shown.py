"""How the command shows failures, and the statement that force-cleanup requires."""

from __future__ import annotations

import shlex
from typing import Any

from typer.testing import CliRunner, Result

from berth.cli.main import app
from tests.berth.scripted import Reply, ScriptedServer, problem

ID = "01900000-0000-7000-8000-000000000002"
NODE = "01900000-0000-7000-8000-000000000003"
NOW = "2026-01-01T00:00:00.000000Z"
ALLOCATION: dict[str, Any] = {
    "allocation_id": ID, "tenant_id": ID, "status": "release_failed", "sku": "s", "shape": "gpu_slice",
    "gpu_model": "H100", "gpus": 1, "region": "r", "image": "i", "correlation_id": ID, "row_version": 1,
    "requested_at": NOW, "failure": {"code": "release_exhausted", "detail": "2 attempts", "next_step": "Do this."},
}  # fmt: skip
SLOT = {"index": 0, "unit": 9, "numa_half": 0, "state": "cleanup_blocked", "holder": ID, "code": "release_exhausted"}
FLEET_NODE: dict[str, Any] = {
    "id": NODE, "name": "n-1", "region": "r", "gpu_model": "H100", "shape": "gpu_slice", "slot_count": 8,
    "half_slots": 4, "state": "active", "online": True, "free_slots": 7, "cleanup_blocked_slots": 1, "epoch": 1,
    "row_version": 1,
}  # fmt: skip


def against(server: ScriptedServer, line: str) -> Result:
    settings = {"BERTH_API_URL": server.address, "BERTH_API_KEY": "berth_aaaaaaaa_key", "COLUMNS": "200"}
    return CliRunner().invoke(app, shlex.split(line), env=settings)


def test_a_failure_is_shown_with_its_code_and_the_next_step() -> None:
    with ScriptedServer([Reply(body=ALLOCATION)]) as server:
        shown = against(server, f"alloc show {ID}")
    assert shown.exit_code == 0, shown.output
    assert "release_exhausted: 2 attempts" in shown.output
    assert "Do this." in shown.output


def test_the_first_boot_of_a_guest_is_shown_with_its_time_and_what_the_guest_says() -> None:
    ended = {"status": "error", "since": NOW, "detail": "runcmd"}
    for first_boot, line in (
        (ended, "error since 2026-01-01 00:00:00: runcmd"),
        ({"status": "unknown", "since": None, "detail": None}, "unknown"),
        (None, None),
    ):
        guest = {"state": "running", "verb": None, "failure": None, "first_boot": first_boot}
        body = ALLOCATION | {"status": "active", "failure": None, "guest": guest}
        with ScriptedServer([Reply(body=body)]) as server:
            shown = against(server, f"alloc show {ID}")
        assert shown.exit_code == 0, shown.output
        lines = [
            row.removeprefix("first boot").strip() for row in shown.output.splitlines() if row.startswith("first boot")
        ]
        assert lines == ([] if line is None else [line]), "a control plane of the version before has none"


def test_force_cleanup_needs_the_operators_statement() -> None:
    with ScriptedServer([Reply(body=ALLOCATION | {"status": "released", "failure": None})]) as server:
        refused = against(server, f"force-cleanup {ID} --reason scrapped")
        assert (refused.exit_code, "--runtime-verified-absent" in refused.stderr) == (2, True)
        assert server.asked == []
        assert against(server, f"force-cleanup {ID} --runtime-verified-absent").exit_code == 2
        done = against(server, f"force-cleanup {ID} --runtime-verified-absent --reason scrapped")
        assert done.exit_code == 0, done.output
        (asked,) = server.asked
    assert asked.path == f"/api/v1/admin/allocations/{ID}/force-cleanup"
    assert asked.body == {"runtime_verified_absent": True, "reason": "scrapped"}


def test_a_node_shows_which_slots_are_blocked_by_what() -> None:
    with ScriptedServer([Reply(body=FLEET_NODE | {"slots": [SLOT]})]) as server:
        shown = against(server, "node show n-1").output.splitlines()
    (row,) = [line for line in shown if "cleanup_blocked" in line]
    assert (ID in row, "release_exhausted" in row) == (True, True)
    with ScriptedServer([Reply(body={"items": [FLEET_NODE], "next_cursor": None})]) as server:
        title, row = against(server, "node list").output.splitlines()
    assert row[title.index("blocked") :].split()[0] == "1"


def test_a_node_in_use_is_not_retired_and_says_what_to_do() -> None:
    claims = [{"owner_kind": "allocation", "owner_id": ID, "state": "failed", "next_step": "force-cleanup it"}]
    refusal = problem(409, "node_in_use", claims=claims)
    with ScriptedServer([Reply(body=FLEET_NODE), refusal]) as server:
        refused = against(server, "node retire n-1 --reason burnt")
        assert server.asked[-1].path == f"/api/v1/admin/nodes/{NODE}/retire"
    assert refused.exit_code == 1
    assert f"allocation {ID} is failed: force-cleanup it" in refused.stderr
