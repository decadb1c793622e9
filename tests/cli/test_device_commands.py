"""`berth alloc devices`: the table, the reason without devices, and text of a node that moves no cursor."""

from __future__ import annotations

import json
import shlex
from typing import Any
from uuid import uuid4

from typer.testing import CliRunner, Result

from berth.cli.main import app
from tests.berth.scripted import Reply, ScriptedServer

ALLOCATION = str(uuid4())
KNOWN: dict[str, Any] = {
    "allocation_id": ALLOCATION, "status": "active", "reason": None, "task_id": str(uuid4()),
    "read_at": "2026-11-27T06:06:12Z",
    "devices": [
        {"name": "disk vda", "model": "virtio", "address": "pci 0000:02:00.0"},
        {"name": "controller pci 0", "model": "pcie-root", "address": None},
    ],
}  # fmt: skip
UNKNOWN = {**KNOWN, "devices": None, "reason": "the agent reported no devices", "task_id": None, "read_at": None}


def run(document: dict[str, Any], more: str = "") -> Result:
    with ScriptedServer([Reply(body=document)]) as server:
        settings = {"COLUMNS": "300", "BERTH_API_URL": server.address, "BERTH_API_KEY": "berth_aaaaaaaa_key"}
        done = CliRunner().invoke(app, shlex.split(f"alloc devices {ALLOCATION} {more}"), env=settings)
        assert server.asked[0].path == f"/api/v1/admin/allocations/{ALLOCATION}/devices"
    assert done.exit_code == 0, done.output
    return done


def lines(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines()]


def test_devices_are_a_table() -> None:
    shown = lines(run(KNOWN))
    assert ["devices", "2"] in shown
    assert ["disk", "vda", "virtio", "pci", "0000:02:00.0"] in shown
    assert ["controller", "pci", "0", "pcie-root", "-"] in shown


def test_unknown_devices_have_a_reason_and_an_empty_list_is_none() -> None:
    shown = lines(run(UNKNOWN))
    assert ["devices", "unknown"] in shown
    assert ["reason", *["the", "agent", "reported", "no", "devices"]] in shown
    assert ["devices", "0"] in lines(run({**UNKNOWN, "devices": []}))


def test_json_is_what_the_server_sent() -> None:
    for document in (KNOWN, UNKNOWN):
        assert json.loads(run(document, "--output json").stdout) == document


def test_no_control_character_reaches_the_terminal() -> None:
    hostile = {**KNOWN, "devices": [{"name": "disk \x1b[2J", "model": "\u202e", "address": None}]}
    shown = run(hostile).stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
