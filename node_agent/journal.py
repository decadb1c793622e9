"""The agent's memory across crashes: an append-only file, synced before and after every effect (DESIGN §9).

What holds after any crash: a task whose `Accepted` was synced is known; an effect that began has a `Started`; a report
that was sent has a `Finished`. At start a torn last record is cut off; a damaged record costs itself alone, and the
file is first copied aside to `journal.corrupt-<n>`. The file is bounded: it is rewritten from its meaning when it has
grown.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import structlog

from node_agent.durable_files import sync_directory
from node_agent.journal_records import AnyRecord, Scan, encode, scan
from node_agent.journal_state import JournalState
from node_agent.metrics import AgentMetrics
from node_agent.problems import JournalUnwritable

log = structlog.get_logger("node_agent.journal")

COMPACT_RECORDS = 2000
COMPACT_BYTES = 4 * 2**20
CORRUPT_COPIES_KEPT = 8


class Journal:
    """One file, one writer (the state directory's owner). `append` puts a record into the page cache and into `state`;
    `sync` returns when every record appended before it is on the disk, sharing one fsync among all who wait."""

    def __init__(self, path: Path, metrics: AgentMetrics) -> None:
        """Read `path`, repair it if needed, open it. Raises `JournalUnwritable`."""
        self.path = path
        self.state = JournalState()
        self._metrics = metrics
        self._appended = 0
        self._synced = 0
        self._records = 0
        self._flush: asyncio.Task[None] | None = None
        try:
            content = path.read_bytes() if path.exists() else b""
            found = scan(content)
            for record in found.records:
                self.state.apply(record)
            self._descriptor = self._open()
            self._repair(found)
        except OSError as error:
            raise JournalUnwritable(f"the journal {path} cannot be opened: {error}") from error
        self._records = len(found.records)
        self._measure()

    @property
    def entries(self) -> int:
        """Records in the file."""
        return self._records

    def append(self, record: AnyRecord) -> None:
        """Write `record` behind the others. It is safe only after `sync`. Raises `JournalUnwritable`."""
        line = encode(record)
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written")
        except OSError as error:
            raise JournalUnwritable(f"the journal {self.path} cannot be written: {error}") from error
        self.state.apply(record)
        self._appended += 1
        self._records += 1

    async def sync(self) -> None:
        """Return when all that was appended before is on the disk. Raises `JournalUnwritable`, after which the agent
        must end: a failed fsync may have dropped what it was for (see fsync(2), EIO)."""
        target = self._appended
        while self._synced < target:
            if self._flush is None or self._flush.done():
                self._flush = asyncio.create_task(self._flush_once())
            await asyncio.shield(self._flush)

    def close(self) -> None:
        """Sync what is there and close."""
        try:
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    async def _flush_once(self) -> None:
        appended, began = self._appended, time.perf_counter()
        try:
            await asyncio.to_thread(os.fsync, self._descriptor)
            if self._records >= COMPACT_RECORDS or os.fstat(self._descriptor).st_size >= COMPACT_BYTES:
                self._compact()
                appended = self._appended
        except OSError as error:
            raise JournalUnwritable(f"the journal {self.path} cannot be synced: {error}") from error
        self._synced = max(self._synced, appended)
        self._metrics.journal_sync.observe(time.perf_counter() - began)
        self._measure()

    def _compact(self) -> None:
        """Replace the file by one that means the same. Blocks for one small write and fsync."""
        lines = [encode(record) for record in self.state.snapshot()]
        aside = self.path.with_name(self.path.name + ".new")
        with aside.open("wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(self.path)
        sync_directory(self.path.parent)
        old, self._descriptor = self._descriptor, self._open()
        os.close(old)
        log.info("journal_compacted", records_before=self._records, records_after=len(lines))
        self._records = len(lines)

    def _open(self) -> int:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        sync_directory(self.path.parent)
        return descriptor

    def _repair(self, found: Scan) -> None:
        if found.tail_lacks_newline:
            os.write(self._descriptor, b"\n")
        if found.torn_bytes and not found.damaged_lines:
            os.ftruncate(self._descriptor, found.whole_bytes)
            log.warning("journal_torn_tail_cut", bytes=found.torn_bytes)
        if found.damaged_lines:
            copy = self._copy_aside()
            self._metrics.journal_damaged.inc(found.damaged_lines)
            log.error(
                "journal_damaged", damaged_records=found.damaged_lines, kept=len(found.records), copied_to=copy.name
            )
            self._compact()
        os.fsync(self._descriptor)

    def _copy_aside(self) -> Path:
        copies = sorted(
            self.path.parent.glob(f"{self.path.name}.corrupt-*"), key=lambda copy: int(copy.name.rpartition("-")[2])
        )
        number = int(copies[-1].name.rpartition("-")[2]) + 1 if copies else 1
        copy = self.path.with_name(f"{self.path.name}.corrupt-{number}")
        shutil.copyfile(self.path, copy)
        for old in copies[: max(0, len(copies) + 1 - CORRUPT_COPIES_KEPT)]:
            old.unlink()
        return copy

    def _measure(self) -> None:
        self._metrics.journal_bytes.set(os.fstat(self._descriptor).st_size)
        self._metrics.unreported.set(len(self.state.live()))
