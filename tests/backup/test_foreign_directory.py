"""A local stack takes no backup directory of another server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from berth.cli.known_stack import StackProblem
from berth.local.backups import require_own_backups


def test_a_directory_of_another_server_is_refused_and_stays_as_it_is(database_url: str, tmp_path: Path) -> None:
    directory = tmp_path / "backups"
    require_own_backups(directory, database_url)
    require_own_backups(directory, database_url)
    mark = directory / "backup.json"
    other = {**json.loads(mark.read_text()), "system_identifier": "1"}
    mark.write_text(json.dumps(other))
    with pytest.raises(StackProblem, match="system identifier 1"):
        require_own_backups(directory, database_url)
    assert json.loads(mark.read_text()) == other


def test_a_directory_with_other_files_is_refused(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(StackProblem, match="BERTH_BACKUP_DIR"):
        require_own_backups(tmp_path, database_url)
