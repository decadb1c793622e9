"""Backups of `berth up --ha`: the stream goes on after the primary has died, and a restore has what was committed after that."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

from berth.cli.deployment.backup.directory import BackupDirectory
from berth.cli.deployment.backup.stream_status import StreamStatus, read_status
from berth.local.high_availability.cluster import BACKUP_SLOT
from tests.berth.commands import berth
from tests.high_availability.stacks import Load, Watched, kill_postgres, stored, watched_stack
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]


def has_slot(running: Watched) -> bool:
    """Whether each member keeps WAL for the stream, also those that do not lead."""
    for member in running.cluster.members:
        with psycopg.connect(member.url(), autocommit=True) as connection:
            found = connection.execute(
                "select restart_lsn is not null from pg_replication_slots where slot_name = %s", (BACKUP_SLOT,)
            ).fetchone()
        if found != (True,):
            return False
    return True


def status_without_lag(directory: BackupDirectory) -> StreamStatus | None:
    """What the stream says, if it has received everything."""
    found = read_status(directory)
    return found if found is not None and found.streaming and found.lag_bytes == 0 else None


def command(state: Path, directory: BackupDirectory, *words: str) -> Any:
    """What a command of backups prints."""
    done = berth("backup", *words, "--output", "json", BERTH_BACKUP_DIR=str(directory.path), BERTH_STATE_DIR=str(state))
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_a_backup_of_a_cluster_reaches_beyond_a_failover(server_directory: Path) -> None:
    place = server_directory / f"backed-up-{uuid.uuid4().hex[:8]}"
    state, directory = place / "var", BackupDirectory(place / "backups")
    place.mkdir(mode=0o755)
    with watched_stack(state, backup_directory=directory.path) as running:
        tenant = running.whole.tenant()
        running.wait_whole()
        wait_for(lambda: has_slot(running), "each member keeps WAL for the stream")
        wait_for(lambda: status_without_lag(directory) is not None, "the stream has everything")
        made = command(state, directory, "run")["backup"]
        before = running.primary()
        with Load(tenant) as load:
            load.wait_for_more(5)
            kill_postgres(before)
            load.wait_for_more(5)
        running.wait_whole()
        assert running.primary() is not before
        wait_for(lambda: running.whole.waiting_events() == 0, "the outbox is empty")
        wait_for(lambda: status_without_lag(directory) is not None, "the stream goes on at the new primary")
        proof = command(state, directory, "verify", "--backup", made["name"])
        assert (proof["ok"], proof["detail"], proof["wal_gap"]) == (True, None, False), proof
        assert proof["rows"]["allocations"] == len(stored(running.cluster)) >= len(load.acknowledged) >= 10
        found = read_status(directory)
        assert found is not None
        assert found.gaps == 0
        after = command(state, directory, "run")["backup"]
        assert command(state, directory, "verify", "--backup", after["name"])["ok"], "of the new primary"


def kept(running: Watched) -> list[object]:
    """The slots of a stream that members have."""
    found: list[object] = []
    for member in running.cluster.members:
        with psycopg.connect(member.url(), autocommit=True) as connection:
            found += connection.execute(
                "select from pg_replication_slots where slot_name = %s", (BACKUP_SLOT,)
            ).fetchall()
    return found


def slots_of_patroni(running: Watched) -> object:
    """The slots that Patroni keeps beside its members' own; None without any."""
    _, body = running.cluster.members[0]._get("/config")
    return json.loads(body).get("slots")


def test_the_slot_comes_and_goes_with_the_setting(server_directory: Path) -> None:
    """A slot that nothing reads would keep WAL up to its bound on every member."""
    place = server_directory / f"backed-up-{uuid.uuid4().hex[:8]}"
    place.mkdir(mode=0o755)
    with watched_stack(place / "var") as running:
        assert slots_of_patroni(running) is None
    with watched_stack(place / "var", backup_directory=place / "backups") as running:
        assert slots_of_patroni(running) == {BACKUP_SLOT: {"type": "physical"}}
        wait_for(lambda: has_slot(running), "each member keeps WAL for the stream")
    with watched_stack(place / "var") as running:
        assert slots_of_patroni(running) is None
        wait_for(lambda: kept(running) == [], "no member keeps WAL for a stream")
