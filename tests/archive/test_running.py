"""`berth archive run`: what is sealed and deleted, what stays, and what a second run does."""

from __future__ import annotations

import errno
import gzip
import json
import os
from pathlib import Path

import psycopg
import pytest

from berth.cli.deployment.archive import running
from berth.cli.deployment.archive.chains import find_allocation, judge
from berth.cli.deployment.archive.directory import Directory
from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.cli.deployment.archive.rows import archive_locked
from berth.cli.deployment.archive.running import Retention, run_archive
from migrations.roles import Role
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.operations.execution import Context
from tests.allocations.driving import allocation_of, failed, report, row_of, rows_of, run_with, task_of
from tests.allocations.seeding import connect, create_allocation, seed
from tests.archive.ended import age, archived_in, end_allocations, left_of, seeded_with, violations
from tests.databases import as_role

EVERYTHING = ["allocations", "claims", "allocation_timeline", "node_tasks"]


def test_an_ended_allocation_is_sealed_and_deleted_with_all_that_belongs_to_it(
    database_url: str, tmp_path: Path
) -> None:
    seeded, (ended, other) = seeded_with(database_url, 2)
    live = create_allocation(database_url, seeded)
    row = allocation_of(database_url, ended)
    charged = rows_of(database_url, "select allocation_id, amount_micro_units from ledger order by id")
    archive = Directory(tmp_path / "archive")
    done = run_archive(as_role(database_url, Role.OPERATOR), archive, Retention(0))
    assert (done.segments, done.deleted, done.skipped, done.resumed) == (1, 2, 0, 0)
    assert archived_in(database_url) == {ended: 1, other: 1}
    tenants = rows_of(database_url, "select distinct tenant_id from archived_allocations")
    assert tenants == [(seeded.tenant_id,)]
    (segment,) = [name for name in archive.names() if name.endswith(".ndjson.gz")]
    assert rows_of(database_url, "select name from archive_segments") == [(segment,)]
    assert [left_of(database_url, one) for one in (ended, other)] == [[], []]
    assert left_of(database_url, live) == ["allocations", "claims", "allocation_timeline"]
    assert rows_of(database_url, "select allocation_id, amount_micro_units from ledger order by id") == charged
    found = find_allocation(archive, str(ended))
    assert found is not None
    assert found["rows"]["allocations"][0]["operation_key"] == row["operation_key"]
    kinds = {table: len(rows) for table, rows in found["rows"].items()}
    assert kinds["claims"] == 1
    assert kinds["node_tasks"] == 2
    assert kinds["allocation_timeline"] > 4
    judged = judge(archive)
    assert (judged.manifests, judged.allocations, judged.repeated) == (1, 2, 0)
    assert judged.violations == []
    audited = row_of(database_url, "select subject, detail from audit where action = 'allocations.archive'")
    assert (audited["subject"], audited["detail"]["deleted"]) == ("archive/1", 2)
    assert violations(database_url) == {}


def test_the_segments_are_bounded_and_their_manifests_form_a_chain(database_url: str, tmp_path: Path) -> None:
    seeded, ended = seeded_with(database_url, 5)
    archive = Directory(tmp_path / "archive")
    assert run_archive(as_role(database_url, Role.OPERATOR), archive, Retention(0), allocations_max=2).segments == 3
    more = end_allocations(database_url, seeded, 1)
    assert run_archive(as_role(database_url, Role.OPERATOR), archive, Retention(0)).segments == 1
    names = [name for name in archive.names() if name.startswith("manifests/")]
    manifests = [json.loads(archive.read(name)) for name in names]
    assert [manifest["sequence"] for manifest in manifests] == [1, 2, 3, 4]
    assert [manifest["segments"][0]["lines"] for manifest in manifests] == [2, 2, 1, 1]
    assert manifests[0]["previous"] is None
    assert judge(archive).violations == []
    assert sorted(archived_in(database_url)) == sorted([*ended, *more])
    segment = gzip.decompress(archive.read(manifests[0]["segments"][0]["name"])).decode()
    assert [json.loads(line)["allocation_id"] for line in segment.splitlines()] == sorted(map(str, ended))[:2]


def test_a_segment_ends_before_it_becomes_too_large(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded_with(database_url, 3)
    monkeypatch.setattr(running, "SEGMENT_BYTES_MAX", 100)
    done = run_archive(as_role(database_url, Role.OPERATOR), Directory(tmp_path / "archive"), Retention(0))
    assert (done.segments, done.deleted) == (3, 3)


def test_what_is_younger_than_the_retention_stays(database_url: str, tmp_path: Path) -> None:
    _, (young, old, long_lived) = seeded_with(database_url, 3)
    young, old = age(database_url, young, 399), age(database_url, old, 401)
    long_lived = age(database_url, long_lived, 401, ended_days=399)
    done = run_archive(as_role(database_url, Role.OPERATOR), Directory(tmp_path / "archive"), Retention(400))
    assert done.deleted == 1
    assert left_of(database_url, old) == []
    assert left_of(database_url, young) == EVERYTHING
    assert left_of(database_url, long_lived) == EVERYTHING


PLANTS = {
    "its claim is open": "update claims set closed_at = null, booked = true where owner_id = %s",
    "a task is live": "update node_tasks set state = 'queued', finished_at = null, result = null where allocation_id = %s"
    " and type = 'slice.vm_release'",
    "an orphan of it is open": "insert into node_orphans (node_id, allocation_id, slots, waits_for, waits_since)"
    " select node_id, id, '{0}', 'operator', clock_timestamp() from allocations where id = %s",
    "its time is not metered": "delete from metering_intervals where allocation_id = %s",
}


@pytest.mark.parametrize("plant", PLANTS)
def test_an_allocation_with_something_open_stays(database_url: str, tmp_path: Path, plant: str) -> None:
    _, (ended,) = seeded_with(database_url, 1)
    with connect(database_url) as connection:
        connection.execute("alter table metering_intervals disable trigger all")
        connection.execute(PLANTS[plant].encode(), (ended,))
    assert (
        run_archive(as_role(database_url, Role.OPERATOR), Directory(tmp_path / "archive"), Retention(0)).segments == 0
    )
    assert left_of(database_url, ended) == EVERYTHING


def test_a_failed_allocation_stays_until_its_cleanup_is_proven(database_url: str, tmp_path: Path) -> None:
    seeded = seed(database_url)
    broken = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, broken, "w")
        task = task_of(database_url, broken)
        await report(context, task, failed(task))
        await finish_provisioning(context, broken)

    run_with(database_url, way)
    assert allocation_of(database_url, broken)["state"] == "failed"
    assert (
        run_archive(as_role(database_url, Role.OPERATOR), Directory(tmp_path / "archive"), Retention(0)).segments == 0
    )
    assert left_of(database_url, broken) == EVERYTHING


def test_a_locked_or_changed_allocation_stays_and_comes_into_a_later_segment(database_url: str, tmp_path: Path) -> None:
    _, (locked, changed, free) = seeded_with(database_url, 3)
    archive = Directory(tmp_path / "archive")
    write = archive.write
    with psycopg.connect(database_url) as holder:
        holder.execute("select from allocations where id = %s for no key update", (locked,))

        class Changing(Directory):
            """Between the segment and the deletion a late report adds a note."""

            def write(self, name: str, content: bytes) -> None:
                write(name, content)
                with connect(database_url) as connection:
                    connection.execute(
                        "insert into allocation_timeline (allocation_id, kind, code, actor_kind)"
                        " values (%s, 'note', 'late', 'node')",
                        (changed,),
                    )

        done = run_archive(as_role(database_url, Role.OPERATOR), Changing(tmp_path / "archive"), Retention(0))
    assert (done.deleted, done.skipped) == (1, 2)
    assert archived_in(database_url) == {free: 1}
    again = run_archive(as_role(database_url, Role.OPERATOR), archive, Retention(0))
    assert (again.deleted, again.skipped) == (2, 0)
    judged = judge(archive)
    assert (judged.allocations, judged.repeated, judged.violations) == (3, 2, [])
    found = find_allocation(archive, str(changed))
    assert found is not None
    notes = [entry["code"] for entry in found["rows"]["allocation_timeline"]]
    assert notes.count("late") == 2, "the newest segment counts"


def test_a_second_run_at_once_is_refused(database_url: str, tmp_path: Path) -> None:
    _, (ended,) = seeded_with(database_url, 1)
    with psycopg.connect(database_url, autocommit=True) as other:
        with archive_locked(other) as held:
            assert held
            with pytest.raises(ArchiveProblem, match="another `berth archive run`") as refused:
                run_archive(as_role(database_url, Role.OPERATOR), Directory(tmp_path / "archive"), Retention(0))
        assert refused.value.code == "archive_running"
        assert left_of(database_url, ended) == EVERYTHING
        # The connection of the first one is still open.
        run_archive(as_role(database_url, Role.OPERATOR), Directory(tmp_path / "archive"), Retention(0))


@pytest.mark.parametrize("full_at", ["ndjson.gz", "000001.json"])
def test_a_full_disk_deletes_nothing(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_at: str
) -> None:
    _, (ended,) = seeded_with(database_url, 1)
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if full_at in Path(f"/proc/self/fd/{descriptor}").readlink().name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr("berth.cli.deployment.archive.directory.os.fsync", full)
    with pytest.raises(ArchiveProblem, match="No space left on device; nothing was deleted"):
        run_archive(as_role(database_url, Role.OPERATOR), Directory(tmp_path / "archive"), Retention(0))
    assert left_of(database_url, ended) == EVERYTHING
    monkeypatch.undo()
    assert list((tmp_path / "archive").glob("*/.*")) == [], "no unfinished file"
    assert run_archive(as_role(database_url, Role.OPERATOR), Directory(tmp_path / "archive"), Retention(0)).deleted == 1
    assert judge(Directory(tmp_path / "archive")).violations == []


def test_another_directory_continues_the_chain_and_a_foreign_one_is_refused(database_url: str, tmp_path: Path) -> None:
    seeded, _ = seeded_with(database_url, 1)
    first, second = Directory(tmp_path / "first"), Directory(tmp_path / "second")
    run_archive(as_role(database_url, Role.OPERATOR), first, Retention(0))
    end_allocations(database_url, seeded, 1)
    run_archive(as_role(database_url, Role.OPERATOR), second, Retention(0))
    (manifest,) = [json.loads(second.read(name)) for name in second.names() if name.startswith("manifests/")]
    assert manifest["sequence"] == 2
    assert judge(second).violations == []
    end_allocations(database_url, seeded, 1)
    run_archive(as_role(database_url, Role.OPERATOR), second, Retention(0))
    (ended,) = end_allocations(database_url, seeded, 1)
    with connect(database_url) as connection:
        connection.execute("update archive_segments set manifest_sha256 = repeat('0', 64) where sequence = 3")
    with pytest.raises(ArchiveProblem, match="does not continue the archive"):
        run_archive(as_role(database_url, Role.OPERATOR), second, Retention(0))
    assert left_of(database_url, ended) == EVERYTHING
