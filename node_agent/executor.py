"""Runs tasks: from the server's response to the delivered report (DESIGN §9).

Guarantees: a task is journaled before its effect; at most one effect completes per fence; tasks of one allocation run
one after the other; a newer fence interrupts an older provision or verb of the same allocation or slots and waits until
it has ended, a provision until it is undone; a finished task is never run again, and its report is sent until the server
acknowledges it. After a crash `recover` undoes interrupted provisions and reports them as interrupted; it runs interrupted
releases and verbs again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from node_agent.admission import Admitted, Refused, Trust, Untrusted, admit, time_objection
from node_agent.clock import ServerClock, boot_seconds
from node_agent.connection import NodeConnection
from node_agent.crash_points import CrashPoint, reach
from node_agent.effects import Effects
from node_agent.journal import Journal
from node_agent.journal_records import Accepted, Finished, Started
from node_agent.journal_state import units_of
from node_agent.metrics import AgentMetrics
from node_agent.progress import TaskProgress
from node_agent.protocol import (
    KNOWN_TASKS_MAX,
    PROVISIONS,
    RELEASES,
    VERBS,
    FailureCode,
    HandedOutTask,
    ResultReport,
    TaskBody,
    TaskType,
)
from node_agent.reporter import Reporter, failed
from node_agent.wire.features import UNDERSTOOD

log = structlog.get_logger("node_agent.executor")

_NOT_INTERRUPTED = frozenset({TaskType.GPU_RESET, TaskType.MAINTENANCE_PLUGIN})
UNTRUSTED_QUIET_SECONDS = 30.0
UNTRUSTED_KEPT = 64


@dataclass(eq=False)
class Run:
    """A running or queued task. `began_before`: an earlier process may have begun its effect."""

    body: TaskBody
    began_before: bool = False
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Executor:
    """Runs in the agent's task group: an exception that belongs to no task (the journal's) ends the process."""

    def __init__(
        self, group: asyncio.TaskGroup, trust: Trust, journal: Journal, clock: ServerClock, effects: Effects,
        reporter: Reporter, connection: NodeConnection, metrics: AgentMetrics, tasks_max: int,
    ) -> None:  # fmt: skip
        self.trust = trust
        self.keys_wanted = asyncio.Event()
        self._group = group
        self._journal = journal
        self._clock = clock
        self._effects = effects
        self._reporter = reporter
        self._connection = connection
        self._metrics = metrics
        self._provision_places = asyncio.Semaphore(tasks_max)
        self._lanes: dict[str, list[Run]] = {}
        self._untrusted: dict[UUID, float] = {}
        self._delivering: set[UUID] = set()
        self._recovering: set[UUID] = set()

    def known(self) -> list[UUID]:
        """Return ids that the server need not hand out again now: journaled and unreported, or rejected recently."""
        now = boot_seconds()
        self._untrusted = {task: until for task, until in self._untrusted.items() if until > now}
        journaled = [task.task_id for task in self._journal.state.live()]
        return (journaled + list(self._untrusted))[:KNOWN_TASKS_MAX]

    @property
    def recovered(self) -> bool:
        """Whether all tasks that an earlier process had begun have ended. Valid after `recover`."""
        return not self._recovering

    def take_trust(self, trust: Trust) -> None:
        """Admit tasks by these keys; those refused for another key are taken when they are handed out again."""
        if trust != self.trust:
            self.trust = trust
            self._untrusted.clear()

    @property
    def full(self) -> bool:
        """Whether one request could not name all running tasks; then no more are requested."""
        return len(self._journal.state.live()) > KNOWN_TASKS_MAX - UNTRUSTED_KEPT

    async def accept(self, handed_out: list[HandedOutTask]) -> bool:
        """Admit, journal (one commit for all) and begin tasks; return whether any was new. Raises JournalUnwritable."""
        runs: list[Run] = []
        refusals: list[tuple[UUID, ResultReport]] = []
        for handed in handed_out:
            journaled = self._journal.state.tasks.get(handed.task_id)
            if journaled is not None and journaled.report is not None:
                self._deliver(handed.task_id, journaled.report)
                continue
            if journaled is not None and journaled.body is not None:
                continue
            match admit(handed, self.trust, self._journal.state, self._clock):
                case Untrusted(reason):
                    self._distrust(handed.task_id, reason)
                case Refused(body, detail):
                    log.warning("task_refused", task_id=str(body.task_id), type=body.type, fence=body.fence, why=detail)
                    report = failed(body.fence, FailureCode.TASK_REFUSED, detail)
                    self._journal.append(Finished(task_id=body.task_id, report=report))
                    self._metrics.tasks.labels(body.type, "refused").inc()
                    refusals.append((body.task_id, report))
                case Admitted(body):
                    reach(CrashPoint.TASK_BEFORE_ACCEPTED)
                    self._journal.append(Accepted(envelope=handed.envelope))
                    runs.append(Run(body))
        await self._journal.sync()
        for run in runs:
            reach(CrashPoint.TASK_AFTER_ACCEPTED)
            self._begin(run)
        for task_id, report in refusals:
            self._deliver(task_id, report)
        return bool(runs or refusals)

    def recover(self) -> None:
        """Finish or report the tasks of an earlier process. Call once, when the server's time is known."""
        for task in self._journal.state.live():
            if task.report is not None:
                self._deliver(task.task_id, task.report)
            elif task.body is not None:
                log.warning("task_found_unfinished", task_id=str(task.task_id), type=task.body.type, began=task.started)
                self._begin(Run(task.body, began_before=task.started))

    def _begin(self, run: Run) -> None:
        lane = self._lanes.setdefault(_lane_of(run.body), [])
        overtaken = [other for other in self._under_way() if _takes_over(run.body, other.body)]
        for other in overtaken:
            other.interrupted.set()
        predecessors = [*lane, *(other for other in overtaken if other not in lane)]
        lane.append(run)
        if run.began_before:
            self._recovering.add(run.body.task_id)
        self._group.create_task(self._run(run, predecessors))

    async def _run(self, run: Run, predecessors: list[Run]) -> None:
        body, lane_name = run.body, _lane_of(run.body)
        self._metrics.running.inc()
        try:
            for earlier in predecessors:
                await earlier.ended.wait()
            progress = TaskProgress(body.task_id, body.fence, self._connection, self._metrics)
            report = await self._report_of(run, progress)
            reach(CrashPoint.EFFECT_AFTER_END)
            self._journal.append(Finished(task_id=body.task_id, report=report))
            await self._journal.sync()
            self._metrics.tasks.labels(body.type, report.outcome).inc()
            log.info(
                "task_ended", task_id=str(body.task_id), type=body.type, allocation_id=str(body.allocation_id),
                fence=body.fence, outcome=report.outcome, code=report.failure.code if report.failure else None,
            )  # fmt: skip
        finally:
            self._metrics.running.dec()
            self._recovering.discard(body.task_id)
            self._leave(lane_name, run)
        await progress.finish()
        self._deliver(body.task_id, report)

    async def _report_of(self, run: Run, progress: TaskProgress) -> ResultReport:
        body = run.body
        lacking = body.needs_objection(UNDERSTOOD)  # of a task that a newer version had journaled before the step back
        if lacking is not None and not (run.began_before and body.type in PROVISIONS):
            return failed(body.fence, FailureCode.TASK_REFUSED, lacking)
        if run.began_before and body.type not in RELEASES | VERBS:
            return await self._effects.undo(body, "the agent ended while this task ran")
        if run.interrupted.is_set():
            return failed(
                body.fence, FailureCode.INTERRUPTED, "a task with a newer fence arrived before this one began"
            )
        if body.type not in PROVISIONS:
            return await self._carried_out(run, progress)
        async with self._provision_places:
            return await self._carried_out(run, progress)

    async def _carried_out(self, run: Run, progress: TaskProgress) -> ResultReport:
        objection = None if run.began_before else time_objection(run.body, self._clock)
        if objection is not None:
            return failed(run.body.fence, FailureCode.TASK_REFUSED, objection)
        if not run.began_before:
            reach(CrashPoint.EFFECT_BEFORE_JOURNALED)
            self._journal.append(Started(task_id=run.body.task_id))
            await self._journal.sync()
        reach(CrashPoint.EFFECT_BEFORE_BEGINNING)
        return await self._effects.carry_out(run.body, run.interrupted, progress.offer)

    def _under_way(self) -> Iterator[Run]:
        return itertools.chain.from_iterable(self._lanes.values())

    def _leave(self, lane_name: str, run: Run) -> None:
        run.ended.set()
        lane = self._lanes[lane_name]
        lane.remove(run)
        if not lane:
            del self._lanes[lane_name]

    def _deliver(self, task_id: UUID, report: ResultReport) -> None:
        if task_id not in self._delivering:
            self._delivering.add(task_id)
            self._group.create_task(self._delivered(task_id, report))

    async def _delivered(self, task_id: UUID, report: ResultReport) -> None:
        await self._reporter.deliver(task_id, report)
        self._delivering.discard(task_id)

    def _distrust(self, task_id: UUID, reason: str) -> None:
        self._metrics.rejected.labels(reason).inc()
        log.error("envelope_rejected", task_id=str(task_id), reason=reason)
        if len(self._untrusted) < UNTRUSTED_KEPT:
            self._untrusted[task_id] = boot_seconds() + UNTRUSTED_QUIET_SECONDS
        if reason == "unknown_key":
            self.keys_wanted.set()


def _takes_over(newer: TaskBody, older: TaskBody) -> bool:
    """Return whether `newer` takes a unit from `older`, a running provision, verb, reset or plugin of the same units.

    A reset and a plugin are not interrupted; `newer` waits for their end.
    """
    if older.type not in PROVISIONS | VERBS | _NOT_INTERRUPTED or older.fence >= newer.fence:
        return False
    return not set(units_of(newer)).isdisjoint(units_of(older))


def _lane_of(body: TaskBody) -> str:
    return f"allocation:{body.allocation_id}" if body.allocation_id is not None else f"task:{body.task_id}"
