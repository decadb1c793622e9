"""The agent's memory across crashes: a log of records, committed before and after every effect (DESIGN §9).

After any crash: a task whose `Accepted` was synced is known; an effect that began has a `Started`; a report that was
sent has a `Finished`. The journal is bounded: after `COMPACT_RECORDS` new records it is replaced by the records that
describe its state. It is also replaced as soon as a task with user data or SSH keys is reported, so that neither the
database nor its WAL contains them any longer.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import structlog

from node_agent.journal_file import JournalFile
from node_agent.journal_records import AnyRecord, Reported
from node_agent.journal_state import REPORTED_SECONDS, JournalState, has_login_data
from node_agent.metrics import AgentMetrics
from node_agent.problems import JournalUnwritable

log = structlog.get_logger("node_agent.journal")

COMPACT_RECORDS = 2000
COMPACT_BYTES = 4 * 2**20


class Journal:
    """The journal of one agent: `append` changes `state` at once, `sync` makes it durable."""

    def __init__(self, path: Path, metrics: AgentMetrics, reported_seconds: float = REPORTED_SECONDS) -> None:
        """Read `path`, repair it if it is damaged, open it. Raises JournalUnwritable.

        `reported_seconds`: how long reports that the server has are kept.
        """
        self.state = JournalState(reported_seconds)
        self._metrics = metrics
        self._file = JournalFile(path)
        self._report_findings()
        self._login_data_done = False
        for row in self._file.found.rows:
            self._apply(row.record)
        self._pending: list[AnyRecord] = []
        self._compacted(len(self._file.found.rows))
        if self._login_data_done:
            # The process was killed between a report and the compaction that it causes.
            snapshot = list(self.state.snapshot())
            self._file.replace(snapshot)
            self._compacted(len(snapshot))
            self._login_data_done = False
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
        self._apply(record)
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
            if self._compaction_is_due():
                appended = await self._compact()
        except JournalUnwritable as failure:
            self._failure = failure
            raise
        self._synced = max(self._synced, appended)
        self._metrics.journal_sync.observe(time.perf_counter() - began)
        self._measure()

    def _apply(self, record: AnyRecord) -> None:
        if isinstance(record, Reported):
            task = self.state.tasks.get(record.task_id)
            if task is not None and task.body is not None and has_login_data(task.body):
                self._login_data_done = True
        self.state.apply(record)

    def _compaction_is_due(self) -> bool:
        full = self._records >= self._compact_at or self._file.content_bytes >= self._compact_at_bytes
        return full or self._login_data_done

    async def _compact(self) -> int:
        """Replace the content by a snapshot of the state; return how many of the appended records it covers."""
        snapshot, appended, before = list(self.state.snapshot()), self._appended, self._records
        self._pending.clear()
        self._login_data_done = False
        await asyncio.to_thread(self._file.replace, snapshot)
        log.info("journal_compacted", records_before=before, records_after=len(snapshot))
        self._compacted(len(snapshot))
        return appended

    def _compacted(self, records: int) -> None:
        self._records = records + len(self._pending)
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
