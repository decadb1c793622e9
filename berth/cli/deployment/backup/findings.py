"""Findings of `berth doctor` about backups: their age, the WAL stream, the last proof, the escrow of key files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from berth.cli.deployment.backup import escrow
from berth.cli.deployment.backup.catalogue import Listed, list_backups, newest
from berth.cli.deployment.backup.directory import BackupDirectory
from berth.cli.deployment.backup.key_files import find_key_files
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.stream_status import read_status
from berth.cli.deployment.findings import Finding

BACKUP_SECONDS_MAX = 86_400.0
VERIFIED_SECONDS_MAX = 7 * 86_400.0
LOST_SECONDS_MAX = 60.0
"""Of commits that a backup lacks if the server's disk is lost now: the promise of the stream (RPO)."""
KEEPS_ALL = "-1"


def backup_findings(path: Path | None, secrets: Path) -> Iterator[Finding]:
    """The findings about a backup directory; one warning if none is named."""
    if path is None:
        yield Finding(
            "backup", "warning", "no backup directory is known; set BERTH_BACKUP_DIR and run `berth backup run` daily"
        )
        return
    directory = BackupDirectory(path)
    try:
        listed = list_backups(directory)
        yield _age(newest(listed))
        yield _stream(directory)
        yield _proof(listed)
    except BackupProblem as problem:
        yield Finding("backup", "bad", str(problem))
        return
    yield _escrow(directory, secrets)


def _age(found: Listed | None) -> Finding:
    if found is None:
        return Finding("backup", "bad", "there is none; run `berth backup run`")
    if found.wal_gap:
        return Finding(
            "backup",
            "bad",
            "the WAL behind the newest one has a gap, so it restores to a moment before; run `berth backup run`",
        )
    seconds = _seconds_since(found.backup.ended_at)
    verdict = f"the last one was made {seconds / 3600:.1f} h ago, at most 24 h are good"
    return Finding("backup", "bad" if seconds > BACKUP_SECONDS_MAX else "ok", verdict)


def _stream(directory: BackupDirectory) -> Finding:
    status = read_status(directory)
    if status is None:
        return Finding(
            "backup stream",
            "warning",
            "no WAL is streamed: what follows the last backup would be lost; `berth backup stream`",
        )
    silent = time.time() - status.at
    if silent > LOST_SECONDS_MAX:
        return Finding("backup stream", "bad", f"`berth backup stream` has said nothing for {silent:.0f} s; start it")
    if not status.streaming:
        return Finding("backup stream", "bad", status.detail or "WAL is not streamed")
    # What was committed since the status was written may be missing too.
    if status.lag_seconds + silent > LOST_SECONDS_MAX:
        return Finding(
            "backup stream", "bad",
            f"{status.lag_bytes} bytes and {status.lag_seconds:.0f} s behind the server {silent:.0f} s ago, at most"
            f" {LOST_SECONDS_MAX:.0f} s together are good",
        )  # fmt: skip
    if status.slot_keep == KEEPS_ALL:
        return Finding(
            "backup stream", "warning", "without max_slot_wal_keep_size a dead stream fills the server's disk; set it"
        )
    return Finding("backup stream", "ok", f"{status.lag_bytes} bytes and {status.lag_seconds:.0f} s behind the server")


def _proof(listed: list[Listed]) -> Finding:
    results = sorted(
        (one.result for one in listed if one.result is not None), key=lambda result: str(result["verified_at"])
    )
    if not results:
        old = bool(listed) and _seconds_since(listed[-1].backup.ended_at) > VERIFIED_SECONDS_MAX
        return Finding(
            "backup proof", "bad" if old else "warning", "no backup has been restored yet; run `berth backup verify`"
        )
    last = results[-1]
    if not last.get("ok"):
        return Finding("backup proof", "bad", f"the last restore was not right: {last.get('detail')}")
    seconds = _seconds_since(str(last["verified_at"]))
    detail = f"the last restore that was right was made {seconds / 86_400:.1f} days ago, at most 7 are good"
    return Finding("backup proof", "bad" if seconds > VERIFIED_SECONDS_MAX else "ok", detail)


def _escrow(directory: BackupDirectory, secrets: Path) -> Finding:
    try:
        stored = escrow.newest(directory)
    except BackupProblem as problem:
        return Finding("key escrow", "bad", str(problem))
    if stored is None:
        return Finding(
            "key escrow", "bad", "the key files are not escrowed; run `berth backup keys --to RECOVERY_PUBLIC_KEY`"
        )
    try:
        lacking = stored.lacks(find_key_files(secrets))
    except BackupProblem:
        return Finding(
            "key escrow",
            "warning",
            f"made at {stored.made_at}; not compared, as key files are missing here or may not be read",
        )
    if lacking:
        return Finding(
            "key escrow", "bad", f"the newest one lacks the present {', '.join(lacking)}; run `berth backup keys`"
        )
    return Finding("key escrow", "ok", f"made at {stored.made_at}, with every key file as it is")


def _seconds_since(moment: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
