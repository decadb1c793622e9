"""`berth doctor` reports the age of the backup, the stream's lag, the last proof, and what the escrow lacks."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from berth.cli.deployment.backup import escrow
from berth.cli.deployment.backup.catalogue import Backup, describe
from berth.cli.deployment.backup.directory import BackupDirectory
from berth.cli.deployment.backup.findings import backup_findings
from berth.cli.deployment.backup.key_files import find_key_files
from berth.cli.deployment.backup.stream_status import StreamStatus, write_status
from berth.local.authority import ensure_authority
from tests.berth.commands import berth

SEGMENT = 16 << 20
STREAMING = StreamStatus(0.0, True, 0, 0.0, 0, 0, "4GB")


@pytest.fixture
def directory(tmp_path: Path) -> BackupDirectory:
    """A backup directory without a backup."""
    found = BackupDirectory(tmp_path / "backups")
    found.claim_for("7000000000000000001")
    return found


def add(directory: BackupDirectory, name: str, age_hours: float, **result: Any) -> None:
    """A backup of so long ago, with the result of its verification unless there is none."""
    at = (datetime.now(UTC) - timedelta(hours=age_hours)).isoformat()
    folder = directory.base / name
    folder.mkdir()
    number = len(list(directory.base.iterdir()))
    describe(folder, Backup(name, at, at, 1, number * SEGMENT, number * SEGMENT + 1, 1, SEGMENT))
    if result:
        verified = (datetime.now(UTC) - timedelta(days=result.pop("days", 0))).isoformat()
        (folder / "verified.json").write_text(json.dumps({"verified_at": verified, **result}))


def found(directory: BackupDirectory | None, secrets: Path | None = None) -> dict[str, tuple[str, str]]:
    """Verdict and detail by subject."""
    path = None if directory is None else directory.path
    return {one.subject: (one.verdict, one.detail) for one in backup_findings(path, secrets or Path("absent"))}


def test_no_directory_is_a_warning_and_a_foreign_one_is_bad(tmp_path: Path) -> None:
    assert found(None)["backup"][0] == "warning"
    assert found(BackupDirectory(tmp_path))["backup"][0] == "bad"
    assert found(BackupDirectory(tmp_path / "absent"))["backup"][0] == "bad"


def test_the_age_of_the_backup(directory: BackupDirectory) -> None:
    assert found(directory)["backup"] == ("bad", "there is none; run `berth backup run`")
    add(directory, "old", 25)
    verdict, detail = found(directory)["backup"]
    assert verdict == "bad"
    assert "25.0 h ago" in detail
    add(directory, "new", 23)
    assert found(directory)["backup"][0] == "ok"


def test_a_gap_in_the_wal_behind_the_newest_backup(directory: BackupDirectory) -> None:
    add(directory, "one", 1)
    (directory.wal / "000001").mkdir()
    (directory.wal / "000001" / "000000010000000000000001").write_text("")
    assert found(directory)["backup"][0] == "ok"
    (directory.wal / "000001" / "000000010000000000000003.partial").write_text("")
    verdict, detail = found(directory)["backup"]
    assert (verdict, "gap" in detail) == ("bad", True)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "ok"),
        ({"slot_keep": "-1"}, "warning"),
        ({"lag_seconds": 40.0}, "ok"),
        ({"lag_seconds": 61.0, "lag_bytes": 5}, "bad"),
        ({"lag_seconds": 40.0, "at": -30.0}, "bad"),
        ({"streaming": False, "code": "backup_server_unreachable", "detail": "no"}, "bad"),
        ({"at": -61.0}, "bad"),
        ({"at": -30.0}, "ok"),
    ],
)
def test_the_stream(directory: BackupDirectory, changed: dict[str, Any], verdict: str) -> None:
    assert found(directory)["backup stream"][0] == "warning"
    at = time.time() + changed.pop("at", 0.0)
    write_status(directory, replace(STREAMING, at=at, **changed))
    assert found(directory)["backup stream"][0] == verdict


def test_the_last_proof(directory: BackupDirectory) -> None:
    add(directory, "one", 1)
    assert found(directory)["backup proof"][0] == "warning"
    add(directory, "two", 24 * 9)
    add(directory, "three", 1)
    (directory.base / "one").rename(directory.base / ".discarded-one")
    (directory.base / "two").rename(directory.base / ".discarded-two")
    add(directory, "four", 2, ok=True, days=6.9)
    assert found(directory)["backup proof"][0] == "ok"
    (directory.base / "four").rename(directory.base / ".discarded-four")
    add(directory, "five", 2, ok=True, days=7.1)
    assert found(directory)["backup proof"][0] == "bad"
    add(directory, "six", 2, ok=True)
    assert found(directory)["backup proof"][0] == "ok"
    add(directory, "seven", 2, ok=False, detail="violated: P3", days=-0.001)
    verdict, detail = found(directory)["backup proof"]
    assert (verdict, "violated: P3" in detail) == ("bad", True)


def test_a_backup_that_was_not_restored_for_a_week(directory: BackupDirectory) -> None:
    add(directory, "one", 24 * 8)
    add(directory, "two", 1)
    assert found(directory)["backup proof"][0] == "bad"


def test_the_escrow_lacks_a_key_that_is_newer(directory: BackupDirectory, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    authority = ensure_authority(secrets, "berth.local")
    assert found(directory, secrets)["key escrow"][0] == "bad"
    recipient = escrow.read_public(escrow.new_key(tmp_path / "recovery.pem"))
    stored = escrow.store(directory, find_key_files(secrets), recipient)
    assert found(directory, secrets)["key escrow"][0] == "ok"
    assert found(directory, tmp_path / "absent")["key escrow"][0] == "warning"
    keys = authority.webhook_keys.read_text()
    authority.webhook_keys.write_text("new\n" + keys)
    verdict, detail = found(directory, secrets)["key escrow"]
    assert (verdict, "webhook.keys" in detail) == ("bad", True)
    escrow.store(directory, find_key_files(secrets), recipient)
    assert found(directory, secrets)["key escrow"][0] == "ok"
    for path in directory.keys.iterdir():
        if path != stored:
            path.write_bytes(b"{}")
    assert found(directory, secrets)["key escrow"][0] == "bad"


def test_the_command_reports_them(directory: BackupDirectory, tmp_path: Path) -> None:
    add(directory, "one", 30)
    done = berth(
        "doctor", "--output", "json", "--state-dir", str(tmp_path / "none"), BERTH_BACKUP_DIR=str(directory.path)
    )
    findings = {one["subject"]: one["verdict"] for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert {name: findings[name] for name in ("backup", "backup stream", "backup proof", "key escrow")} == {
        "backup": "bad", "backup stream": "warning", "backup proof": "warning", "key escrow": "bad",
    }  # fmt: skip
