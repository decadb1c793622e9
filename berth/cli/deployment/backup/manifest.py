"""Checks a base backup against its manifest, as pg_verifybackup does: every file, its size and its SHA-256, and no other file.

The wheel's pg_verifybackup ends with SIGSEGV before it reads anything (decision 0043), so every installation is checked here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from berth.cli.deployment.backup import programs
from berth.cli.deployment.backup.problems import BackupProblem
from berth.process.json_objects import JsonObject

NAME = "backup_manifest"
NOT_IN_IT = frozenset({NAME, "postgresql.auto.conf", "recovery.signal", "standby.signal"})
"""What may change or appear without damage; the list of pg_verifybackup, with pg_wal, whose content pg_waldump reads."""
_LAST_LINE = b'"Manifest-Checksum"'


def read_manifest(data: Path) -> JsonObject:
    """The manifest, if it is as it was written. Raises `BackupProblem`, OSError."""
    content = (data / NAME).read_bytes()
    head, mark, _ = content.rpartition(_LAST_LINE)
    try:
        found: JsonObject = json.loads(content)
        if mark and found["Manifest-Checksum"] == hashlib.sha256(head).hexdigest():
            return found
    except (ValueError, KeyError, TypeError):
        pass
    raise BackupProblem("backup_damaged", f"{data / NAME} is damaged; take a new backup")


def check_files(data: Path, manifest: JsonObject) -> None:
    """Compare every file with the manifest. Raises `BackupProblem` naming the first that differs, OSError."""
    expected = {_path_of(file): file for file in manifest["Files"]}
    for name, file in sorted(expected.items()):
        path = data / name
        if not path.is_file():
            raise _damaged(path, "is missing")
        if path.stat().st_size != file["Size"]:
            raise _damaged(path, f"has {path.stat().st_size} bytes instead of {file['Size']}")
        with path.open("rb") as content:
            if (
                file["Checksum-Algorithm"] != "SHA256"
                or hashlib.file_digest(content, "sha256").hexdigest() != file["Checksum"]
            ):
                raise _damaged(path, "has another content than when the backup was taken")
    if not (data / "pg_wal").is_dir():
        raise _damaged(data, "lacks pg_wal")
    for name in _names(data):
        if name not in expected and name not in NOT_IN_IT:
            raise _damaged(data / name, "does not belong to the backup")


def check_wal(data: Path, manifest: JsonObject, programs_dir: Path | None, holding: int) -> None:
    """Read the WAL that the backup needs to be consistent. Raises `BackupProblem`."""
    for needed in manifest["WAL-Ranges"]:
        command = [
            programs.program("pg_waldump", programs_dir), "--quiet", f"--path={data / 'pg_wal'}",
            f"--timeline={needed['Timeline']}", f"--start={needed['Start-LSN']}", f"--end={needed['End-LSN']}",
        ]  # fmt: skip
        programs.run(command, dict(os.environ), "reading the WAL of the backup", holding=holding, code="backup_damaged")


def _path_of(file: JsonObject) -> str:
    encoded = file.get("Encoded-Path")
    return str(file["Path"]) if encoded is None else os.fsdecode(bytes.fromhex(encoded))


def _names(data: Path) -> Iterator[str]:
    """Every file by its path below `data`, without those of pg_wal."""
    for folder, folders, files in os.walk(data):
        here = Path(folder).relative_to(data)
        if here == Path():
            folders.remove("pg_wal")
        for name in files:
            yield str(here / name)


def _damaged(path: Path, what: str) -> BackupProblem:
    return BackupProblem("backup_damaged", f"{path} {what}; take a new backup")
