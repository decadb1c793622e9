"""Which WAL is there and whether a restore gets through it, from file names and histories alone."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from berth.cli.deployment.backup.wal import (
    Reach,
    Stored,
    begins_record,
    name_of,
    reach_of,
    read_stored,
    segment_of,
    stage,
)

SEGMENT = 1 << 20


@given(st.integers(1, 0xFFFF), st.integers(0, 1 << 40), st.sampled_from([1 << 20, 16 << 20, 1 << 30]))
def test_a_name_and_its_segment(timeline: int, number: int, size: int) -> None:
    number %= (1 << 64) // size
    found = segment_of(name_of(timeline, number, size), size)
    assert found is not None
    assert (found.timeline, found.number) == (timeline, number)


@given(st.dictionaries(st.integers(0, 40), st.booleans()), st.integers(0, 40))
def test_gaps_on_one_timeline_are_found(complete: dict[int, bool], first: int) -> None:
    """Every segment but the last is there and complete, or there is a gap."""
    last = max((number for number in complete if number >= first), default=None)
    found = reach_of(Stored({(1, number): whole for number, whole in complete.items()}), 1, first)
    if last is None:
        assert found == Reach(None, gap=False)
    else:
        assert found == Reach((1, last), any(not complete.get(number) for number in range(first, last)))


@st.composite
def lineages(draw: st.DrawFn) -> tuple[Stored, int]:
    """All WAL of up to four timelines without a gap, and the newest of them; ancestors go on beyond their end."""
    begins = [0, *sorted(draw(st.sets(st.integers(3, 30), max_size=3)))]
    complete: dict[tuple[int, int], bool] = {}
    for at, begin in enumerate(begins):
        ends = [*begins[1:], draw(st.integers(31, 34))]
        beyond = draw(st.integers(0, 3)) if at + 1 < len(begins) else 0
        for number in range(begin, ends[at] + 1 + beyond):
            complete[at + 1, number] = number < ends[at] or beyond > 0
    histories = {at + 1: [(parent + 1, begins[parent + 1]) for parent in range(at)] for at in range(1, len(begins))}
    return Stored(complete, histories), len(begins)


@given(lineages(), st.data())
def test_gaps_across_timelines_are_found(lineage: tuple[Stored, int], data: st.DataObject) -> None:
    stored, newest = lineage
    end = max(number for timeline, number in stored.complete if timeline == newest)
    assert reach_of(stored, 1, 0) == Reach((newest, end), gap=False)
    begins = [0, *(number for _, number in stored.histories.get(newest, ()))]
    number = data.draw(st.integers(0, end - 1))
    owner = max(at for at, begin in enumerate(begins) if begin <= number) + 1
    without = {key: whole for key, whole in stored.complete.items() if key != (owner, number)}
    assert reach_of(Stored(without, stored.histories), 1, 0).gap, "a segment of another timeline does not replace it"
    unfinished = {**stored.complete, (owner, number): False}
    assert reach_of(Stored(unfinished, stored.histories), 1, 0).gap, "its end is missing"


def test_a_timeline_that_does_not_descend_from_the_backup() -> None:
    assert reach_of(Stored({(1, 5): True}, {2: [(1, 4)]}), 1, 5).gap, "it was left before the backup"
    assert reach_of(Stored({(3, 5): True}, {4: [(2, 4)]}), 3, 5).gap


def test_an_unfinished_segment_between_runs(tmp_path: Path) -> None:
    for run, name in (("000001", f"{name_of(1, 3, SEGMENT)}.partial"), ("000002", name_of(1, 4, SEGMENT))):
        (tmp_path / run).mkdir()
        (tmp_path / run / name).touch()
    assert reach_of(read_stored(tmp_path, SEGMENT), 1, 3) == Reach((1, 4), gap=True)
    (tmp_path / "000002" / name_of(1, 3, SEGMENT)).touch()
    assert not reach_of(read_stored(tmp_path, SEGMENT), 1, 3).gap, "the complete one is used"


def test_the_histories_that_postgresql_writes(tmp_path: Path) -> None:
    (tmp_path / "000001").mkdir()
    text = "1\t0/300028\tno recovery target specified\n\n2\t1/0\tbefore 2000-01-01\n"
    (tmp_path / "000001" / "00000003.history").write_text(text)
    assert read_stored(tmp_path, SEGMENT).histories == {3: [(1, 3), (2, 4096)]}


def test_a_torn_segment_is_staged_with_its_whole_size(tmp_path: Path) -> None:
    run, target = tmp_path / "wal" / "000001", tmp_path / "staged"
    run.mkdir(parents=True)
    target.mkdir()
    (run / f"{name_of(1, 3, SEGMENT)}.partial").write_bytes(b"x" * 5)
    assert stage(tmp_path / "wal", 0, SEGMENT, target, lambda path: None, link=True) == 1
    staged = target / name_of(1, 3, SEGMENT)
    assert staged.read_bytes() == b"x" * 5 + bytes(SEGMENT - 5)
    assert (run / f"{name_of(1, 3, SEGMENT)}.partial").stat().st_size == 5, "the original is as it was"


def test_a_segment_in_which_no_record_begins(tmp_path: Path) -> None:
    path = tmp_path / "segment"

    def begins(rest: int, length: int) -> bool:
        header = bytes(16) + rest.to_bytes(4, "little") + b"\1" * 20
        path.write_bytes((header + b"\1" * (length - 40)).ljust(SEGMENT, b"\0"))
        return begins_record(path)

    path.write_bytes(b"")
    assert not begins_record(path)
    assert not begins(0, 40)
    assert not begins(100, 140)
    assert not begins(100_000, 50_000)
    assert begins(0, 100)
    assert begins(100, 500)
