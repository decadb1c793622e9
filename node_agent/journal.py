"""The agent's memory across crashes: a log of records, committed before and after every effect (DESIGN §9).

After any crash: a task whose `Accepted` was synced is known; an effect that began has a `Started`; a report that was
sent has a `Finished`. The journal is bounded: after `COMPACT_RECORDS` new records it is replaced by the records that
describe its state.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import structlog

from node_agent.journal_file import JournalFile
from node_agent.journal_records import AnyRecord
from node_agent.journal_state import JournalState
from node_agent.metrics import AgentMetrics
from node_agent.problems import JournalUnwritable

log = structlog.get_logger("node_agent.journal")

COMPACT_RECORDS = 2000
COMPACT_BYTES = 4 * 2**20


class Journal:
    """The journal of one agent: `append` changes `state` at once, `sync` makes it durable."""

    def __init__(self, path: Path, metrics: AgentMetrics) -> None:
        """Read `path`, repair it if it is damaged, open it. Raises JournalUnwritable."""
        self.state = JournalState()
        self._metrics = metrics
        self._file = JournalFile(path)
        self._report_findings()
        for row in self._file.found.rows:
            self.state.apply(row.record)
        self._records = len(self._file.found.rows)
        self._compact_at = self._records + COMPACT_RECORDS
        self._compact_at_bytes = self._file.content_bytes + COMPACT_BYTES
        self._pending: list[AnyRecord] = []
        self._appended = 0
        self._synced = 0
        self._failure: JournalUnwritable | None = None
        self._flush: asyncio.Task[None] | None = None
        self.unreported = 0
        """Tasks that are journaled and not yet reported, as of the last commit; may be read from any thread."""
        self._measure()

    @property
    def entries(self) -> int:
        """Records in the journal, those not yet synced included."""
        return self._records

    def append(self, record: AnyRecord) -> None:
        """Apply `record` to `state` and put it into the next commit. It is durable only after `sync`."""
        self.state.apply(record)
        self._pending.append(record)
        self._appended += 1
        self._records += 1

    async def sync(self) -> None:
        """Return when every record appended before is on the disk; concurrent callers share one commit.

        Raises JournalUnwritable, after which the agent must end: nothing is written after a failed commit.
        """
        target = self._appended
        while self._synced < target:
            if self._flush is None or self._flush.done():
                self._flush = asyncio.create_task(self._flush_once())
            await asyncio.shield(self._flush)

    def close(self) -> None:
        """Commit what is pending and close. Raises JournalUnwritable."""
        if self._pending and self._failure is None:
            self._file.append(self._pending)
        self._file.close()

    async def _flush_once(self) -> None:
        if self._failure is not None:
            raise self._failure
        began = time.perf_counter()
        records, self._pending = self._pending, []
        appended = self._appended
        try:
            await asyncio.to_thread(self._file.append, records)
            if self._records >= self._compact_at or self._file.content_bytes >= self._compact_at_bytes:
                self._compact()
                appended = self._appended
        except JournalUnwritable as failure:
            self._failure = failure
            raise
        self._synced = max(self._synced, appended)
        self._metrics.journal_sync.observe(time.perf_counter() - began)
        self._measure()

    def _compact(self) -> None:
        """Replace the content by a snapshot of the state. Blocks the event loop for one transaction."""
        snapshot = list(self.state.snapshot())
        self._file.replace(snapshot)
        self._pending.clear()
        log.info("journal_compacted", records_before=self._records, records_after=len(snapshot))
        self._records = len(snapshot)
        self._compact_at = self._records + COMPACT_RECORDS
        self._compact_at_bytes = self._file.content_bytes + COMPACT_BYTES

    def _report_findings(self) -> None:
        found = self._file.found
        if found.torn:
            log.warning("journal_incomplete_transaction_dropped", records_kept=len(found.rows))
        if found.copied_to is not None:
            self._metrics.journal_damaged.inc(found.damaged)
            log.error(
                "journal_damaged", damaged_records=found.damaged, records_kept=len(found.rows),
                copied_to=found.copied_to.name,
            )  # fmt: skip

    def _measure(self) -> None:
        self._metrics.journal_bytes.set(self._file.bytes_used())
        self.unreported = len(self.state.live())
        self._metrics.unreported.set(self.unreported)
