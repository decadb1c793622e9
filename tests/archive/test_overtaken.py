"""A name of an archive is written once, so that no run replaces what another one has sealed; earlier formats stay readable."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from berth.cli.deployment.archive.chains import find_allocation, judge
from berth.cli.deployment.archive.directory import Directory
from berth.cli.deployment.archive.manifests import Line, Manifest, describe, digest_of
from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.cli.deployment.archive.running import Retention, run_archive
from migrations.roles import Role
from tests.allocations.driving import rows_of
from tests.allocations.seeding import connect
from tests.archive.ended import end_allocations, seeded_with
from tests.databases import as_role
from tests.support.waiting import wait_for


def _end_sessions(url: str) -> None:
    """End the sessions of `berth archive run`, as a restart of the server or a broken network does."""
    with connect(url) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'berth archive'"
        )
    wait_for(
        lambda: not rows_of(url, "select pid from pg_stat_activity where application_name = 'berth archive'"),
        "the end of the sessions",
    )


@pytest.mark.full
@pytest.mark.parametrize("at", ["manifests/", ".ndjson.gz"])
def test_a_run_that_lost_its_lock_does_not_replace_what_the_next_one_wrote(
    database_url: str, tmp_path: Path, at: str
) -> None:
    """The first run is cut off in the middle of a write; the second one archives the same allocation with a later change."""
    _, (ended,) = seeded_with(database_url, 1)
    path = tmp_path / "archive"
    overtaken: list[str] = []

    class CutOff(Directory):
        def write(self, name: str, content: bytes) -> None:
            if at in name and not overtaken:
                overtaken.append(name)
                _end_sessions(database_url)
                with connect(database_url) as connection:
                    connection.execute(
                        "insert into allocation_timeline (allocation_id, kind, code, actor_kind)"
                        " values (%s, 'note', 'late', 'node')",
                        (ended,),
                    )
                assert run_archive(as_role(database_url, Role.OPERATOR), Directory(path), Retention(0)).deleted == 1
            super().write(name, content)

    with pytest.raises((ArchiveProblem, psycopg.OperationalError)) as refused:
        run_archive(as_role(database_url, Role.OPERATOR), CutOff(path), Retention(0))
    if at == "manifests/":
        assert isinstance(refused.value, ArchiveProblem)
        assert refused.value.code == "archive_overtaken"
    else:
        assert isinstance(refused.value, psycopg.OperationalError), "it does not write a manifest without its lock"
    judged = judge(Directory(path))
    assert (judged.manifests, judged.allocations, judged.violations) == (1, 1, [])
    found = find_allocation(Directory(path), str(ended))
    assert found is not None
    assert [entry["code"] for entry in found["rows"]["allocation_timeline"]].count("late") == 1, (
        "the second run's segment counts"
    )
    assert run_archive(as_role(database_url, Role.OPERATOR), Directory(path), Retention(0)).segments == 0


def test_a_name_is_written_once_and_the_same_content_is_no_problem(tmp_path: Path) -> None:
    archive = Directory(tmp_path / "archive")
    archive.write("manifests/1.json", b"first")
    archive.write("manifests/1.json", b"first")
    with pytest.raises(ArchiveProblem, match="exists with other content") as refused:
        archive.write("manifests/1.json", b"second")
    assert refused.value.code == "archive_overtaken"
    assert archive.read("manifests/1.json") == b"first"
    assert archive.names() == ["manifests/1.json"]


def test_writers_around_midnight_write_the_same_name(tmp_path: Path) -> None:
    segment = describe(1, "2026-01-01", [Line("a", "{}")], b"content")
    before, after = (Manifest(1, None, f"2026-01-0{day}T00:00:00Z", "0020", 400, [segment]).name for day in (1, 2))
    assert before == after


def test_an_archive_of_format_1_is_continued(database_url: str, tmp_path: Path) -> None:
    """An earlier Berth wrote the date into the names of manifests, and `allocations` for `lines`."""
    seeded, (ended,) = seeded_with(database_url, 1)
    path = tmp_path / "archive"
    run_archive(as_role(database_url, Role.OPERATOR), Directory(path), Retention(0))
    manifest = json.loads((path / "manifests/000000000001.json").read_text())
    (segment,) = manifest["segments"]
    for name in ("kind", "hash", "hash_before"):
        del segment[name]
    segment["allocations"] = segment.pop("lines")
    manifest["format"] = 1
    old = (json.dumps(manifest, sort_keys=True, indent=1) + "\n").encode()
    (path / "manifests/000000000001.json").unlink()
    (path / f"{manifest['sealed_at'][:10]}/000000000001.manifest.json").write_bytes(old)
    with connect(database_url) as connection:
        connection.execute("update archive_segments set manifest_sha256 = %s", (digest_of(old),))
    end_allocations(database_url, seeded, 1)
    run_archive(as_role(database_url, Role.OPERATOR), Directory(path), Retention(0))
    judged = judge(Directory(path))
    assert (judged.manifests, judged.allocations, judged.violations) == (2, 2, [])
    assert find_allocation(Directory(path), str(ended)) is not None
