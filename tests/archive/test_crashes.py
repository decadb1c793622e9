"""`berth archive run` is killed at each of its crash points; the next run loses nothing and deletes nothing twice (P14)."""

from __future__ import annotations

from pathlib import Path

import pytest

from berth.cli.deployment.archive.chains import find_allocation, judge
from berth.cli.deployment.archive.crash_points import CrashPoint
from berth.cli.deployment.archive.directory import Directory
from berth.cli.deployment.archive.running import Retention, run_archive
from migrations.roles import Role
from tests.allocations.driving import rows_of
from tests.archive.ended import age, archived_in, left_of, seeded_with, violations
from tests.archive.killing import killed_run
from tests.databases import as_role

BEFORE_SEALED = {CrashPoint.BEFORE_SEGMENT, CrashPoint.AFTER_SEGMENT}


@pytest.mark.quick("archive.after_segment", "archive.before_delete_commit")
@pytest.mark.parametrize("point", list(CrashPoint))
def test_nothing_is_lost_when_the_command_is_killed(database_url: str, tmp_path: Path, point: CrashPoint) -> None:
    _, made = seeded_with(database_url, 2)
    ended = [age(database_url, one, 2) for one in made]
    before = {
        one: len(rows_of(database_url, "select id from allocation_timeline where allocation_id = %s", one))
        for one in ended
    }
    archive = Directory(tmp_path / "archive")
    killed_run(database_url, str(tmp_path / "archive"), point)
    for one in ended:
        in_rows = left_of(database_url, one) != []
        sealed = find_allocation(archive, str(one)) is not None
        assert in_rows or sealed
        assert sealed == (point not in BEFORE_SEALED)
    done = run_archive(as_role(database_url, Role.OPERATOR), archive, Retention(1))
    assert done.resumed == (point in {CrashPoint.AFTER_MANIFEST, CrashPoint.BEFORE_DELETE_COMMIT})
    assert sorted(archived_in(database_url)) == sorted(ended)
    judged = judge(archive)
    assert (judged.allocations, judged.repeated, judged.violations) == (2, 0, [])
    for one in ended:
        found = find_allocation(archive, str(one))
        assert found is not None
        assert len(found["rows"]["allocation_timeline"]) == before[one]
    # Events still name the ids from before `age`; other promises are checked where nothing is made older.
    assert "archive" not in violations(database_url)
