"""The journal's SQLite database: durable appends, atomic replacement, and repair of a damaged file.

The database is in WAL mode with `synchronous=FULL`: a commit returns after its fsync. Three checks detect damage when
the file is opened: the checksum and position of every row, SQLite's `integrity_check`, and a comparison of the WAL
file with what SQLite recovered from it. A damaged file is copied aside and rebuilt from the rows that are intact.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from berth.process.durable_directories import sync_directory
from node_agent.durable_files import make_private_directory, write_durably
from node_agent.journal_records import AnyRecord, Row, find_rows, seal, unseal
from node_agent.problems import JournalUnwritable

PAGE_BYTES = 16 * 1024
CHECKPOINT_PAGES = 64
LOCK_SECONDS = 5.0
CORRUPT_COPIES_KEPT = 8

_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_SCHEMA = "CREATE TABLE records (position INTEGER PRIMARY KEY, sealed BLOB NOT NULL)"
_SELECT = "SELECT position, sealed FROM records ORDER BY position"
_INSERT = "INSERT INTO records (position, sealed) VALUES (?, ?)"
_LINE_FORMAT = re.compile(rb"[0-9a-f]{8} \{")
_ENVIRONMENT = frozenset(
    {
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM,
    }
)  # fmt: skip
"""Errors of the disk or of other processes. Every other error while the file is read is taken for damage."""


@dataclass
class Found:
    """What a journal contained when it was opened."""

    rows: list[Row] = field(default_factory=list)
    damaged: int = 0
    torn: bool = False
    """The last transaction in the WAL is incomplete: the process or machine stopped while it was written."""
    copied_to: Path | None = None


class JournalFile:
    """An open journal database. One process writes it; its methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        """Open `path`, create it if it is missing, repair it if it is damaged. Raises JournalUnwritable."""
        self.path = path
        self._lock = threading.Lock()
        try:
            make_private_directory(path.parent)
            before = _Bytes.of(path)
            if _LINE_FORMAT.match(before.main):
                raise JournalUnwritable(
                    f"the journal {path} has the line format of an earlier build, which this agent cannot read; "
                    "let that build finish its tasks, then remove the file"
                )
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection, self.found = _open(path, before)
        except (OSError, sqlite3.Error) as error:
            raise JournalUnwritable(f"the journal {path} cannot be opened: {error}") from error
        rows = self.found.rows
        self._first = rows[0].position if rows else 1
        self._next = rows[-1].position + 1 if rows else 1
        self.content_bytes = sum(len(seal(row)) for row in rows)
        """Bytes of all records; the file may be larger, because it keeps free pages."""

    def append(self, records: Sequence[AnyRecord]) -> None:
        """Commit `records` behind the others; they are on the disk afterwards. Raises JournalUnwritable."""
        with self._transaction():
            self._insert(records, self._first)

    def replace(self, records: Sequence[AnyRecord]) -> None:
        """Replace the whole content in one transaction. Raises JournalUnwritable."""
        first = self._next
        with self._transaction():
            self._connection.execute("DELETE FROM records")
            self.content_bytes = 0
            self._insert(records, first)
        self._first = first
        with self._lock:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def bytes_used(self) -> int:
        """Return the size of the database and its WAL."""
        return sum(file.stat().st_size for file in (self.path, _wal(self.path)) if file.exists())

    def close(self) -> None:
        """Move the WAL's content into the database and close it. Raises JournalUnwritable."""
        with self._lock:
            try:
                self._connection.close()
            except sqlite3.Error as error:
                raise JournalUnwritable(f"the journal {self.path} cannot be closed: {error}") from error

    def _insert(self, records: Sequence[AnyRecord], first: int) -> None:
        rows = _placed(records, self._next, self._first, first)
        sealed = [(row.position, seal(row)) for row in rows]
        self._connection.executemany(_INSERT, sealed)
        self._next += len(rows)
        self.content_bytes += sum(len(content) for _, content in sealed)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise JournalUnwritable(f"the journal {self.path} cannot be written: {error}") from error


def read_journal(path: Path) -> list[AnyRecord]:
    """Return the records of a journal that another process may be writing. Raises sqlite3.Error."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        rows = [unseal(sealed) for _, sealed in connection.execute(_SELECT)]
    return [row.record for row in rows if row is not None]


def _placed(records: Sequence[AnyRecord], position: int, old_first: int, first: int) -> list[Row]:
    """Number `records`. Only the last row names the new `first`: it proves that those before it were written too."""
    last = len(records) - 1
    return [
        Row(position + index, first if index == last else old_first, record) for index, record in enumerate(records)
    ]


@dataclass(frozen=True)
class _Bytes:
    """The raw files, read before SQLite opens them: reading them later would drop SQLite's locks (fcntl(2))."""

    main: bytes
    wal: bytes

    @classmethod
    def of(cls, path: Path) -> _Bytes:
        wal = _wal(path)
        return cls(path.read_bytes() if path.exists() else b"", wal.read_bytes() if wal.exists() else b"")

    def frames(self) -> list[bytes]:
        """Return the whole frames of the WAL's current generation.

        Frames of an earlier generation have other values in both salt fields; one flipped bit changes only one field.
        """
        size = _FRAME_HEADER_BYTES + PAGE_BYTES
        starts = range(_WAL_HEADER_BYTES, len(self.wal) - size + 1, size)
        frames = [self.wal[start : start + size] for start in starts]
        return [frame for frame in frames if frame[8:12] == self.wal[16:20] or frame[12:16] == self.wal[20:24]]

    def rows(self) -> Iterator[Row]:
        yield from find_rows(self.main)
        for frame in self.frames():
            yield from find_rows(frame)


def _open(path: Path, before: _Bytes) -> tuple[sqlite3.Connection, Found]:
    connection = _connect(path)
    rows: dict[int, Row] = {}
    intact, recovered = False, 0
    try:
        # SQLite takes a file that is shorter than a page for an empty one.
        intact = _read(connection, rows) and not 0 < len(before.main) < PAGE_BYTES
        _, recovered, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except sqlite3.Error as error:
        if (error.sqlite_errorcode & 0xFF) in _ENVIRONMENT or not os.access(path, os.W_OK):
            connection.close()
            raise
    except UnicodeDecodeError:
        pass  # damaged text in SQLite's error message
    unread = before.frames()[max(recovered, 0) :]
    # The header of a transaction's last frame contains the size of the database, that of another frame zero.
    committed_unread = any(frame[4:8] != bytes(4) for frame in unread)
    if intact and not committed_unread:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return connection, Found([rows[position] for position in sorted(rows)], torn=bool(unread))
    # The last connection removes the WAL when it is closed: everything is taken from it before.
    found = _rebuild(path, before, rows)
    connection.close()
    _replace(path)
    connection = _connect(path)
    _read(connection, {})
    return connection, found


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
    connection.text_factory = bytes  # damaged text may be no UTF-8
    return connection


def _read(connection: sqlite3.Connection, rows: dict[int, Row]) -> bool:
    """Prepare the connection, read every intact row, and return whether nothing is damaged. Raises sqlite3.Error."""
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.execute("PRAGMA secure_delete = ON")  # no removed row may be found again in a damaged file
    connection.execute("BEGIN IMMEDIATE")
    schema = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema")]
    if not schema and connection.execute("PRAGMA page_count").fetchone()[0] <= 1:
        connection.execute(_SCHEMA)
        schema = [_SCHEMA.encode()]
    intact = schema == [_SCHEMA.encode()]
    for position, sealed in connection.execute(_SELECT):
        row = unseal(sealed) if isinstance(sealed, bytes) else None
        if row is None or row.position != position:
            intact = False
        else:
            rows[position] = row
    first = max((row.first for row in rows.values()), default=1)
    intact = intact and list(rows) == list(range(first, first + len(rows)))
    intact = intact and connection.execute("PRAGMA integrity_check(1)").fetchall() == [(b"ok",)]
    connection.execute("COMMIT")
    return intact


def _rebuild(path: Path, before: _Bytes, rows: dict[int, Row]) -> Found:
    """Copy the damaged files aside and write every intact row into a new database beside `path`."""
    copied_to = _copy_aside(path, before)
    last = max(rows, default=0)
    for row in before.rows():
        rows.setdefault(row.position, row)
    first = max((row.first for row in rows.values()), default=1)
    kept = [rows[position] for position in sorted(rows) if position >= first]
    last = max([last, *(row.position for row in kept)])
    renumbered = _placed([row.record for row in kept], last + 1, last + 1, last + 1)
    new = _new(path)
    for file in (new, _wal(new), _shared(new)):
        file.unlink(missing_ok=True)
    os.close(os.open(new, os.O_RDWR | os.O_CREAT, 0o600))
    with closing(_connect(new)) as connection:
        _read(connection, {})
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, [(row.position, seal(row)) for row in renumbered])
        connection.execute("COMMIT")
    return Found(renumbered, damaged=max(last - first + 1 - len(kept), 1), copied_to=copied_to)


def _replace(path: Path) -> None:
    """Put the new database at `path`, durably. A WAL beside it would be applied to it, so the old one goes first."""
    for file in (_wal(path), _shared(path)):
        file.unlink(missing_ok=True)
    sync_directory(path.parent)
    _new(path).rename(path)
    sync_directory(path.parent)


def _copy_aside(path: Path, before: _Bytes) -> Path:
    def number(copy: Path) -> int:
        return int(copy.name.rpartition("-")[2])

    copies = sorted((copy for copy in path.parent.glob(f"{path.name}.corrupt-*[0-9]")), key=number)
    copy = path.with_name(f"{path.name}.corrupt-{number(copies[-1]) + 1 if copies else 1}")
    write_durably(copy, before.main)
    if before.wal:
        write_durably(_wal(copy), before.wal)
    for old in copies[: max(0, len(copies) + 1 - CORRUPT_COPIES_KEPT)]:
        old.unlink()
        _wal(old).unlink(missing_ok=True)
    return copy


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _new(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def _shared(path: Path) -> Path:
    return path.with_name(path.name + "-shm")
