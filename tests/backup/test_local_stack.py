"""The local stack streams WAL into the directory that is set, and `berth backup` finds its PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from berth.cli.deployment.backup.directory import BackupDirectory
from berth.cli.deployment.backup.stream_status import read_status
from berth.cli.known_stack import read_stack
from berth.local.options import StackOptions
from berth.local.processes import Endpoints, backup_stream_plan
from berth.local.stack import Stack
from tests.berth.commands import berth
from tests.deploy.deployment import SETTINGS, known_variables
from tests.support.waiting import wait_for


def test_the_stream_gets_the_address_of_the_backup_role_alone(tmp_path: Path) -> None:
    endpoints = Endpoints("postgresql://owner@h/x", "", "", 1, 2, backup_database_url="postgresql://berth_backup@h/x")
    plan = backup_stream_plan(endpoints, tmp_path / "backups", 9)
    assert plan.command[-2:] == ["backup", "stream"]
    assert plan.environment["BERTH_BACKUP_DATABASE_URL"] == endpoints.backup_database_url
    assert "BERTH_DATABASE_URL" not in plan.environment
    assert plan.environment.keys() <= known_variables(SETTINGS["operator"])


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_stack_streams_and_its_backup_is_proven(data_directory: Path) -> None:
    data_directory.mkdir(mode=0o755)
    state, directory = data_directory / "var", BackupDirectory(data_directory / "backups")
    with Stack(StackOptions(state, agents=0, wished_port=None, backup_directory=directory.path)) as stack:
        assert stack.parts["backup"].state == "ready"
        url = read_stack(state).backup_database_url
        assert url is not None
        assert "berth_backup" in url
        named = {"BERTH_BACKUP_DIR": str(directory.path), "BERTH_STATE_DIR": str(state)}
        assert berth("backup", "run", **named).returncode == 0
        wait_for(lambda: (status := read_status(directory)) is not None and status.lag_bytes == 0, "no lag")
        proof = json.loads(berth("backup", "verify", "--output", "json", **named).stdout)
        assert (proof["ok"], proof["detail"]) == (True, None)
        public = json.loads(
            berth("backup", "new-recovery-key", str(state / "recovery.pem"), "--output", "json", **named).stdout
        )
        assert berth("backup", "keys", "--to", public["public_key"], **named).returncode == 0
        found = json.loads(berth("doctor", "--output", "json", **named).stdout)["findings"]
        verdicts = {one["subject"]: one["verdict"] for one in found}
        assert {verdicts[name] for name in ("backup", "backup stream", "backup proof", "key escrow")} == {"ok"}
