"""Delivery of results: retried with bounded backoff until the server acknowledges them (DESIGN §9, P14).

`applied: false` is an acknowledgement too: the task was superseded or reported before.
"""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

import structlog

from berth.process.backoff import Backoff
from berth.process.json_objects import JsonObject
from node_agent.connection import CredentialsRefused, NodeConnection, RequestRefused, Unreachable
from node_agent.crash_points import CrashPoint, reach
from node_agent.journal import Journal
from node_agent.journal_records import Reported
from node_agent.metrics import AgentMetrics
from node_agent.protocol import RESULT_BYTES_MAX, FailureCode, ResultAnswer, ResultReport, TaskFailure

log = structlog.get_logger("node_agent.reporter")

REPORTS_AT_ONCE_MAX = 8
RETRY_SECONDS_MAX = 5.0


def completed(fence: int, result: JsonObject) -> ResultReport:
    """Return the report of a completed effect. Evidence that is too large for one message is replaced by its size, and a
    statement, which repeats it, is left out."""
    report = ResultReport(fence=fence, outcome="completed", result=result)
    if len(report.model_dump_json()) > RESULT_BYTES_MAX:
        size = len(json.dumps(result.get("evidence"), default=str))
        small = {name: value for name, value in result.items() if name != "wipe_statement"}
        report = ResultReport(
            fence=fence, outcome="completed", result={**small, "evidence": {"left_out": f"{size} bytes are too many"}}
        )
    return report


def failed(fence: int, code: FailureCode, detail: str) -> ResultReport:
    """Return the report of a failed task."""
    return ResultReport(fence=fence, outcome="failed", failure=TaskFailure(code=code, detail=detail[:2000]))


def _for_earlier(report: ResultReport) -> ResultReport:
    """The report as a control plane of an earlier version reads it."""
    failure = report.failure
    return report if failure is None else report.model_copy(update={"failure": failure.in_codes_of_0_2_0()})


class Reporter:
    """Sends reports, at most eight at a time, and journals each acknowledgement.

    A report that is refused is sent once more without what only this version's control plane knows.
    """

    def __init__(self, connection: NodeConnection, journal: Journal, metrics: AgentMetrics) -> None:
        self._connection = connection
        self._journal = journal
        self._metrics = metrics
        self._places = asyncio.Semaphore(REPORTS_AT_ONCE_MAX)

    async def deliver(self, task_id: UUID, report: ResultReport) -> None:
        """Return when the server has the report, or has definitely refused to take it. Raises JournalUnwritable."""
        backoff = Backoff(most_seconds=RETRY_SECONDS_MAX)
        while True:
            try:
                async with self._places:
                    reach(CrashPoint.REPORT_BEFORE_SEND)
                    answer = await self._connection.post(f"/node/v1/tasks/{task_id}/result", report, ResultAnswer)
            except (Unreachable, CredentialsRefused) as error:
                self._metrics.report_retries.inc()
                log.warning("report_not_delivered", task_id=str(task_id), why=str(error))
                await asyncio.sleep(backoff.next_seconds())
                continue
            except RequestRefused as refused:
                if (earlier := _for_earlier(report)) != report:
                    report = earlier
                    continue
                log.error("report_refused", task_id=str(task_id), why=str(refused))
            else:
                log.info("reported", task_id=str(task_id), applied=answer.applied, reason=answer.reason)
            reach(CrashPoint.REPORT_AFTER_ANSWER)
            self._journal.append(Reported(task_id=task_id))
            await self._journal.sync()
            reach(CrashPoint.REPORT_AFTER_JOURNALED)
            return
