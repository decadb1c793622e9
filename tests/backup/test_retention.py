"""Retention never deletes the newest backup, the newest proven one, or WAL that a kept backup needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.cli.deployment.backup.catalogue import Backup, Listed, list_backups
from berth.cli.deployment.backup.directory import RETENTION_LOCK
from berth.cli.deployment.backup.retention import Kept, choose, removable_segments
from berth.cli.deployment.backup.wal import Segment
from tests.backup.stage import Stage

NOW = datetime(2026, 11, 28, tzinfo=UTC)
SEGMENT = 16 << 20


def backup(number: int, age_hours: int, segment: int, timeline: int = 1) -> Backup:
    """A backup that began in a segment and was complete so long ago."""
    ended = (NOW - timedelta(hours=age_hours)).isoformat()
    return Backup(f"b{number}", ended, ended, timeline, segment * SEGMENT + 40, segment * SEGMENT + 80, 1, SEGMENT)


@st.composite
def catalogues(draw: st.DrawFn) -> list[Listed]:
    """Backups in order, newest first; clocks may have stepped back, so ages are in no order."""
    starts = draw(st.lists(st.integers(0, 500), max_size=12, unique=True))
    found = []
    for number, segment in enumerate(sorted(starts, reverse=True)):
        result = draw(st.sampled_from([None, {"ok": True}, {"ok": False}]))
        found.append(Listed(backup(number, draw(st.integers(0, 2_000)), segment), result, False))
    return found


KEPT = st.builds(Kept, st.integers(1, 8), st.integers(0, 60))
SEGMENTS = st.lists(st.builds(Segment, st.integers(1, 3), st.integers(0, 520), st.booleans()), max_size=60)


@given(catalogues(), KEPT)
def test_what_must_stay_stays(listed: list[Listed], kept: Kept) -> None:
    gone = {one.name for one in choose(listed, kept, NOW)}
    staying = [one for one in listed if one.backup.name not in gone]
    assert staying[:1] == listed[:1], "the newest"
    proven = [one for one in listed if one.is_verified]
    assert proven[:1] == [one for one in staying if one.is_verified][:1], "the newest that was restored"
    assert not gone & {one.backup.name for one in listed[: kept.count]}, "so many of the newest"
    assert not gone & {one.backup.name for one in listed if one.backup.ended >= NOW - timedelta(days=kept.days)}, (
        "young ones"
    )


@given(catalogues(), KEPT)
def test_what_nothing_keeps_goes_and_a_repetition_deletes_nothing(listed: list[Listed], kept: Kept) -> None:
    gone = choose(listed, kept, NOW)
    staying = [one for one in listed if one.backup not in gone]
    assert choose(staying, kept, NOW) == []
    proven = next((one.backup.name for one in listed if one.is_verified), None)
    old = [one for one in staying[kept.count :] if one.backup.ended < NOW - timedelta(days=kept.days)]
    assert {one.backup.name for one in old} <= {proven}


@settings(max_examples=50)
@given(catalogues(), SEGMENTS)
def test_no_kept_backup_loses_wal(listed: list[Listed], segments: list[Segment]) -> None:
    backups = [one.backup for one in listed]
    segments = [*segments, *(Segment(1, one.first_segment) for one in backups)]
    gone = removable_segments(segments, backups)
    for one in backups:
        assert all(segment.number < one.first_segment for segment in gone)
    if not backups:
        assert gone == set()
    else:
        oldest = min(one.first_segment for one in backups)
        assert {segment for segment in segments if segment.number < oldest} == gone


@pytest.mark.full
def test_backups_and_their_wal_go_together(stage: Stage) -> None:
    with stage.streaming():
        first = stage.back_up().backup
        stage.mark()
        stage.switch_wal()
        stage.mark()
        stage.wait_streamed()
        second = stage.back_up(Kept(1, 1)).backup
        assert [one.backup.name for one in list_backups(stage.directory)] == [second.name, first.name], "young enough"
        stage.mark()
        stage.wait_streamed()
        assert stage.verify(name=first.name).ok
        run = stage.back_up(Kept(1, 0))
        assert run.removed is not None
        assert run.removed.backups == [second.name], "the proven one stays, and its WAL"
        assert stage.verify(name=first.name).ok
        assert stage.verify(name=run.backup.name).ok
        last = stage.back_up(Kept(1, 0))
        assert last.removed is not None
        assert last.removed.backups == [first.name]
        assert last.removed.segments > 0
        assert [one.backup.name for one in list_backups(stage.directory)] == [last.backup.name, run.backup.name]


def test_retention_waits_while_a_backup_is_read(stage: Stage) -> None:
    made = [stage.back_up().backup.name]
    with stage.directory.locked(RETENTION_LOCK, "a verification", shared=True):
        run = stage.back_up(Kept(1, 0))
    assert run.removed is None
    assert {one.backup.name for one in list_backups(stage.directory)} == {*made, run.backup.name}
