"""The agent's journal: it opens after any damage, loses at most the damaged record, and compaction keeps its state."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
import tempfile
import uuid
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent import journal_file
from node_agent.journal import Journal
from node_agent.journal_file import JournalFile, read_journal
from node_agent.journal_records import AnyRecord, Started, find_rows
from node_agent.metrics import AgentMetrics
from node_agent.problems import JournalUnwritable
from tests.support.journals import (
    Files,
    accepted,
    body,
    folded,
    histories,
    meaning,
    records_of,
    written,
)


@settings(max_examples=25, deadline=None)
@given(histories(), st.data())
def test_a_truncated_wal_loses_only_the_transaction_that_was_cut(records: list[AnyRecord], data: st.DataObject) -> None:
    files, sizes = written(records)
    cut = data.draw(st.integers(0, len(files.wal)))
    whole = sum(size <= cut for size in sizes)
    added = Started(task_id=uuid.UUID(int=99))
    with tempfile.TemporaryDirectory() as directory:
        path = Files(files.main, files.wal[:cut]).put(Path(directory))
        journal = Journal(path, AgentMetrics())
        assert meaning(journal.state) == meaning(folded(records[:whole]))
        journal.append(added)
        journal.close()
        again = JournalFile(path)
        assert [row.record for row in again.found.rows] == [*records[:whole], added]
        assert (again.found.torn, again.found.damaged) == (False, 0)
        again.close()
        assert not list(Path(directory).glob("*.corrupt-*"))


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(histories(), st.data())
def test_a_flipped_bit_costs_at_most_the_record_it_hit_and_the_files_are_kept(
    records: list[AnyRecord], data: st.DataObject
) -> None:
    intact, _ = written(records, checkpointed=data.draw(st.integers(0, len(records))))
    changed = {"main": bytearray(intact.main), "wal": bytearray(intact.wal)}
    content = changed[data.draw(st.sampled_from(["main", "wal"]))] or changed["main"]
    # Most bytes of a page are unused; prefer those that mean something. The salts of a WAL are random, so no strategy
    # may depend on its bytes.
    used = [position for position, byte in enumerate(content) if byte]
    candidates = used if data.draw(st.integers(0, 9)) else range(len(content))
    position = candidates[data.draw(st.integers(0, 2**24)) % len(candidates)]
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    files = Files(bytes(changed["main"]), bytes(changed["wal"]))
    with tempfile.TemporaryDirectory() as directory:
        path = files.put(Path(directory))
        metrics = AgentMetrics()
        journal = Journal(path, metrics)
        found = [row.record for row in journal._file.found.rows]
        assert found == [record for record in records if record in found], "in the order in which they were written"
        lost = len(records) - len(found)
        assert lost <= 1
        damaged = metrics.registry.get_sample_value("berth_agent_journal_damaged_records_total")
        assert damaged or not lost or journal._file.found.torn, "no record is lost in silence"
        assert meaning(journal.state) == meaning(folded(found))
        journal.close()
        copies = list(Path(directory).glob("journal.corrupt-1"))
        assert bool(copies) == bool(damaged)
        assert all(copy.read_bytes() == files.main for copy in copies)
        assert all(copy.read_bytes() == files.wal for copy in Path(directory).glob("journal.corrupt-1-wal"))
        assert records_of(path) == found
        assert len(list(Path(directory).glob("journal.corrupt-?"))) == len(copies), "the damage was repaired"


def test_a_row_that_a_damaged_page_hides_is_found_again(tmp_path: Path) -> None:
    records = [Started(task_id=uuid.UUID(int=number)) for number in range(1, 5)]
    files, _ = written(records, checkpointed=len(records))
    main = bytearray(files.main)
    cells = journal_file.PAGE_BYTES + 3  # the number of rows in the table's only page, two bytes
    assert main[cells : cells + 2] == b"\x00\x04"
    main[cells + 1] = 3
    file = JournalFile(Files(bytes(main), b"").put(tmp_path))
    file.close()
    assert [row.record for row in file.found.rows] == records, "SQLite itself reads three rows without an error"
    assert file.found.damaged == 1
    assert file.found.copied_to is not None


@settings(max_examples=25, deadline=None)
@given(histories(), st.data())
def test_a_truncated_database_file_starts_with_the_records_that_are_left(
    records: list[AnyRecord], data: st.DataObject
) -> None:
    files, _ = written(records, checkpointed=len(records))
    cut = data.draw(st.integers(1, len(files.main) - 1))
    with tempfile.TemporaryDirectory() as directory:
        path = Files(files.main[:cut], b"").put(Path(directory))
        file = JournalFile(path)
        file.close()
        found = [row.record for row in file.found.rows]
        assert found == [record for record in records if record in found]
        assert [row.record for row in sorted(find_rows(files.main[:cut]), key=lambda row: row.position)] == found
        assert file.found.damaged >= 1
        assert records_of(path) == found


def test_compaction_leaves_no_removed_record_in_the_file(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "journal")
    file.append([accepted(body(number, fence=number)) for number in range(1, 200)])
    kept = accepted(body(500, fence=500))
    file.replace([kept])
    file.close()
    raw = list(find_rows((tmp_path / "journal").read_bytes()))
    assert [row.record for row in raw] == [kept], "repair of a damaged file would bring the others back"
    assert (raw[0].position, raw[0].first) == (200, 200)
    assert records_of(tmp_path / "journal") == [kept]


def test_a_journal_in_the_line_format_is_refused_in_one_sentence(tmp_path: Path) -> None:
    record = Started(task_id=uuid.UUID(int=1)).model_dump_json().encode()
    line = b"%08x %b\n" % (zlib.crc32(record), record)
    (tmp_path / "journal").write_bytes(line)
    with pytest.raises(JournalUnwritable, match="has the line format of an earlier build"):
        Journal(tmp_path / "journal", AgentMetrics())
    assert (tmp_path / "journal").read_bytes() == line
    assert [file.name for file in tmp_path.iterdir()] == ["journal"]


def test_the_directory_and_its_files_are_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    journal = Journal(tmp_path / "journal", AgentMetrics())
    journal.append(Started(task_id=uuid.UUID(int=1)))
    asyncio.run(journal.sync())
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"journal": 0o600, "journal-wal": 0o600, "journal-shm": 0o600}
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
    journal.close()


def test_every_commit_reaches_the_disk_before_it_returns(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "journal")
    assert file._connection.execute("PRAGMA journal_mode").fetchone() == (b"wal",)
    assert file._connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL: an fsync at every commit"
    assert file._connection.execute("PRAGMA secure_delete").fetchone() == (1,)
    file.append([Started(task_id=uuid.UUID(int=1))])
    assert read_journal(tmp_path / "journal") == [Started(task_id=uuid.UUID(int=1))], "another connection sees it"
    file.close()


def test_a_full_disk_ends_the_journal_and_loses_nothing_that_was_synced(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", AgentMetrics())
    journal._file._connection.execute("PRAGMA max_page_count = 6")
    synced = 0

    async def fill() -> None:
        nonlocal synced
        for number in range(1, 1000):
            journal.append(accepted(body(number, fence=number)))
            await journal.sync()
            synced = number

    with pytest.raises(JournalUnwritable, match="cannot be written: database or disk is full"):
        asyncio.run(fill())
    journal._file._connection.execute("PRAGMA max_page_count = 100000")
    with pytest.raises(JournalUnwritable, match="disk is full"):
        asyncio.run(journal.sync())
    journal.close()
    assert 10 < synced < 999
    assert len(records_of(tmp_path / "journal")) == synced, "nothing is written after a failed commit"


def test_a_file_that_cannot_grow_ends_the_journal_and_loses_nothing_that_was_synced(tmp_path: Path) -> None:
    limited = """
import asyncio, pathlib, resource, signal, sys, uuid
from node_agent.journal import Journal
from node_agent.journal_records import Started
from node_agent.metrics import AgentMetrics
from node_agent.problems import JournalUnwritable

async def fill():
    journal = Journal(pathlib.Path(sys.argv[1]), AgentMetrics())
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    for number in range(10_000):
        journal.append(Started(task_id=uuid.UUID(int=number)))
        try:
            await journal.sync()
        except JournalUnwritable as error:
            print(number, error)
            return

asyncio.run(fill())
"""
    ran = subprocess.run(
        [sys.executable, "-c", limited, str(tmp_path / "journal")], capture_output=True, text=True, check=True
    )
    synced, _, sentence = ran.stdout.partition(" ")
    assert "cannot be written" in sentence
    assert int(synced) > 5
    assert records_of(tmp_path / "journal") == [Started(task_id=uuid.UUID(int=number)) for number in range(int(synced))]


def test_a_journal_that_another_process_has_locked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "LOCK_SECONDS", 0.1)
    path = tmp_path / "journal"
    journal = Journal(path, AgentMetrics())
    journal.append(Started(task_id=uuid.UUID(int=1)))
    asyncio.run(journal.sync())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        journal.append(Started(task_id=uuid.UUID(int=2)))
        with pytest.raises(JournalUnwritable, match="cannot be written: database is locked"):
            asyncio.run(journal.sync())
        journal.close()
        with pytest.raises(JournalUnwritable, match="cannot be opened: database is locked"):
            Journal(path, AgentMetrics())
    assert not list(tmp_path.glob("*.corrupt-*")), "a lock is no damage"
    assert records_of(path) == [Started(task_id=uuid.UUID(int=1))]
