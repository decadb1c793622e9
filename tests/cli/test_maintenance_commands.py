"""`berth maintenance`: what each command sends and prints."""

from __future__ import annotations

import json
import shlex
from urllib.parse import parse_qs

import pytest
from typer.testing import CliRunner, Result

from berth.cli.main import app
from tests.berth.scripted import Reply, ScriptedServer

ID, NODE_ID = "01900000-0000-7000-8000-000000000002", "01900000-0000-7000-8000-000000000003"
STARTS, ENDS = "2030-03-01T12:00:00+00:00", "2030-03-01T14:00:00+00:00"
TIMES = f"--starts-at {STARTS} --ends-at {ENDS}"
MAINTENANCE = "/api/v1/admin/maintenance"
SLOT = f"slot:{NODE_ID}:1"
WINDOW = {
    "window_id": ID, "starts_at": STARTS, "ends_at": ENDS, "reason": "firmware", "state": "scheduled", "created_at": STARTS,
    "started_at": None, "ended_at": None, "resources": [SLOT], "planned": [SLOT], "waits_for": "start",
    "waits_since": STARTS, "waits_until": STARTS,
}  # fmt: skip
NODE = {
    "region": "r", "gpu_model": "H100", "shape": "gpu_slice", "slot_count": 8, "half_slots": 4, "state": "active",
    "online": True, "free_slots": 7, "cleanup_blocked_slots": 0, "epoch": 1, "row_version": 1,
}  # fmt: skip
CONFLICT = {
    "owner": f"allocations/{ID}", "tenant_id": ID, "node_id": NODE_ID, "resources": [SLOT], "starts_at": STARTS,
    "ends_at": None, "state": "active", "resolution": "notify",
}  # fmt: skip


def against(server: ScriptedServer, line: str) -> Result:
    settings = {"BERTH_API_URL": server.address, "BERTH_API_KEY": "berth_aaaaaaaa_key", "COLUMNS": "300"}
    return CliRunner().invoke(app, shlex.split(line), env=settings)


@pytest.mark.parametrize(
    ("line", "method", "path"),
    [
        (f"show {ID}", "GET", f"/{ID}"),
        (f"cancel {ID}", "POST", f"/{ID}/cancel"),
        (f"end {ID}", "POST", f"/{ID}/end"),
    ],
    ids=["show", "cancel", "end"],
)
def test_each_command_calls_its_route(line: str, method: str, path: str) -> None:
    with ScriptedServer([Reply(body=WINDOW)]) as server:
        done = against(server, f"maintenance {line}")
        assert done.exit_code == 0, done.output
        (asked,) = server.asked
        assert (asked.method, asked.path) == (method, MAINTENANCE + path)
        assert "firmware" in done.output
        assert SLOT in done.output


def test_a_commit_sends_the_window() -> None:
    with ScriptedServer([Reply(201, WINDOW)]) as server:
        done = against(
            server,
            f"maintenance commit --slot {SLOT} {TIMES} --reason firmware --allocations notify --reservations move",
        )
        assert done.exit_code == 0, done.output
        (asked,) = server.asked
        assert (asked.method, asked.path) == ("POST", MAINTENANCE)
        assert asked.body == {
            "resources": [SLOT], "starts_at": STARTS, "ends_at": ENDS, "reason": "firmware", "allocations": "notify",
            "reservations": "move",
        }  # fmt: skip


def test_a_plan_names_every_resource_and_prints_the_conflicts() -> None:
    with ScriptedServer([Reply(body={"conflicts": [CONFLICT]})]) as server:
        done = against(server, f"maintenance plan --slot {SLOT} --slot slot:{NODE_ID}:2 {TIMES}")
        assert done.exit_code == 0, done.output
        path, _, query = server.asked[0].path.partition("?")
        assert path == f"{MAINTENANCE}/plan"
        assert query.count("resources=") == 2
        assert f"allocations/{ID}" in done.output
        assert "notify" in done.output


FIVE = "allocation 0 is active, reservation 1 is active, maintenance window 2 is active, allocation 3 is active, reservation 4"


@pytest.mark.parametrize(("number", "named"), [(1, "allocation 0 is active"), (7, f"{FIVE} is active and 2 more")])
def test_a_refused_commit_names_what_is_in_the_way(number: int, named: str) -> None:
    owners = ["allocations", "reservations", "maintenance"]
    conflicts = [{**CONFLICT, "owner": f"{owners[one % 3]}/{one}", "resolution": "refuse"} for one in range(number)]
    problem = {
        "code": "maintenance_conflict",
        "title": "Maintenance conflict",
        "detail": "claims",
        "conflicts": conflicts,
    }
    with ScriptedServer([Reply(409, problem)] * 2) as server:
        line = f"maintenance commit --slot {SLOT} {TIMES} --reason firmware"
        done = against(server, line)
        assert done.exit_code == 1
        assert " ".join(done.stderr.split()).endswith(f"; in the way: {named}")
        shown = json.loads(against(server, f"{line} --output json").stdout)["error"]
        assert [one["owner"] for one in shown["conflicts"]] == [one["owner"] for one in conflicts]


@pytest.mark.parametrize(
    "nodes", ["--nodes gpu-1,gpu-2", "--node gpu-1 --node gpu-2", "--nodes gpu-1,gpu-2, --node gpu-1"]
)
def test_nodes_are_named_one_by_one_or_with_commas(nodes: str) -> None:
    ids = [NODE_ID, ID]
    found = [Reply(body={**NODE, "id": node_id, "name": f"gpu-{number}"}) for number, node_id in enumerate(ids, 1)]
    with ScriptedServer([*found, Reply(body={"conflicts": []})]) as server:
        done = against(server, f"maintenance plan {nodes} {TIMES}")
        assert done.exit_code == 0, done.output
        assert [asked.path.rsplit("/", 1)[1] for asked in server.asked[:2]] == ["gpu-1", "gpu-2"]
        query = parse_qs(server.asked[2].path.partition("?")[2])
        assert query["resources"] == [f"node:{node_id}" for node_id in ids]


def test_the_list_filters_by_state() -> None:
    with ScriptedServer([Reply(body={"items": [WINDOW], "next_cursor": None})]) as server:
        assert "firmware" in against(server, "maintenance list --state scheduled").output
        assert "state=scheduled" in server.asked[0].path
