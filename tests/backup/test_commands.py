"""The commands print one document for programs, one sentence for each refusal, and stable codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from berth.cli.main import app
from berth.local.authority import ensure_authority
from tests.backup.stage import Stage


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the environment, and no stack in the directory."""
    for name in [name for name in os.environ if name.startswith("BERTH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def told(stage: Stage, *arguments: str, **more: str) -> tuple[int, Any]:
    """Exit code and document of a command line."""
    named = {"BERTH_BACKUP_DIR": str(stage.directory.path), "BERTH_BACKUP_DATABASE_URL": stage.url, **more}
    done = CliRunner().invoke(app, ["backup", *arguments, "--output", "json"], env=named)
    return done.exit_code, json.loads(done.stdout)


def text(stage: Stage, *arguments: str) -> str:
    """What a command that succeeds prints for a person."""
    named = {"BERTH_BACKUP_DIR": str(stage.directory.path), "BERTH_BACKUP_DATABASE_URL": stage.url}
    done = CliRunner().invoke(app, ["backup", *arguments], env=named)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.full
def test_the_life_of_a_backup(stage: Stage, tmp_path: Path) -> None:
    assert told(stage, "list") == (
        1,
        {"error": {"code": "not_backup_directory", "detail": told(stage, "list")[1]["error"]["detail"]}},
    )
    code, run = told(stage, "run")
    assert (code, run["removed"]) == (0, {"backups": [], "segments": 0})
    name = run["backup"]["name"]
    code, listed = told(stage, "list")
    assert (code, [one["name"] for one in listed], listed[0]["result"]) == (0, [name], None)
    assert "never verified" in text(stage, "list")
    code, result = told(stage, "verify")
    assert (code, result["backup"], result["ok"], result["rows"]["alembic_version"]) == (0, name, True, 1)
    assert f"{name} restored" in text(stage, "verify")
    assert "verified at" in text(stage, "list")
    assert "complete and checked" in text(stage, "run")
    code, result = told(stage, "verify", "--database", "postgres")
    assert (code, result["ok"], result["code"]) == (1, False, "restore_failed")
    assert "NOT right" in text(stage, "list")


def test_the_escrow(stage: Stage, tmp_path: Path) -> None:
    stage.directory.claim_for("7000000000000000001")
    (tmp_path / "secrets").mkdir()
    ensure_authority(tmp_path / "secrets", "berth.local")
    code, pair = told(stage, "new-recovery-key", str(tmp_path / "recovery.pem"))
    assert (code, Path(pair["private_key_file"]).exists()) == (0, True)
    code, stored = told(stage, "keys", "--to", pair["public_key"], BERTH_BACKUP_SECRETS_DIR=str(tmp_path / "secrets"))
    assert (code, "node-ca.key" in stored["files"]) == (0, True)
    code, opened = told(
        stage, "open-keys", stored["escrow"], "--key", str(tmp_path / "recovery.pem"), "--into", str(tmp_path / "out")
    )
    assert (code, opened["files"]) == (0, stored["files"])
    assert (tmp_path / "out" / "node-ca.key").read_bytes() == (tmp_path / "secrets" / "node-ca.key").read_bytes()
    for arguments, refused in (
        (("keys", "--to", "berth-recovery-wrong"), "recovery_key_wrong"),
        (("keys", "--to", pair["public_key"], "--secrets", str(tmp_path / "out" / "none")), "key_files_missing"),
        (("new-recovery-key", str(tmp_path / "recovery.pem")), "escrow_not_opened"),
        (("open-keys", "none", "--key", str(tmp_path / "recovery.pem"), "--into", str(tmp_path / "x")), "backup_failed"),
    ):  # fmt: skip
        code, document = told(stage, *arguments)
        assert (code, document["error"]["code"]) == (1, refused)


def test_what_is_not_named_is_asked_for(stage: Stage) -> None:
    for arguments, settings, code in (
        (("list",), {"BERTH_BACKUP_DATABASE_URL": "postgresql://x@127.0.0.1:1/x"}, "no_backup_directory"),
        (("run",), {"BERTH_BACKUP_DIR": str(stage.directory.path)}, "no_database"),
        (("verify", "--at", "yesterday"), {"BERTH_BACKUP_DIR": str(stage.directory.path)}, "usage"),
    ):  # fmt: skip
        done = CliRunner().invoke(app, ["backup", *arguments, "--output", "json"], env=settings)
        assert json.loads(done.stdout)["error"]["code"] == code
    status, document = told(stage, "run", BERTH_BACKUP_PROGRAMS_DIR="/nowhere")
    assert (status, document["error"]["code"]) == (1, "backup_programs_missing")
    status, document = told(stage, "run", BERTH_BACKUP_DATABASE_URL=stage.url.replace("of-the-backup-role", "other"))
    assert (status, document["error"]["code"]) == (1, "backup_not_permitted")
    status, document = told(stage, "run", BERTH_BACKUP_DATABASE_URL="postgresql://berth_backup:x@127.0.0.1:1/postgres")
    assert (status, document["error"]["code"]) == (3, "backup_server_unreachable")
