"""Runs the tasks of a site during one lease: from the server's response to the delivered report.

Guarantees: a task is journaled before its effect; tasks of one machine run one after the other, those of different machines
beside each other, at most `tasks_max`, and as many again that only wait for the SSH server of their machine: these take no slot
of others, and end as soon as their machine has another task. Sessions of consoles take none either; that of a machine is closed
before its next task begins. Nothing runs on after the lease, as its end cancels everything. A task whose report was not delivered
is handed out again under the next lease, and performed again from its start: each effect allows that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from uuid import UUID

import structlog

from berth.process.backoff import Backoff
from node_agent.admission import Refused, Untrusted
from node_agent.bmc_consoles.sessions import MachineSessions
from node_agent.clock import ServerClock
from node_agent.connection import CredentialsRefused, NodeConnection, RequestRefused, Unreachable
from node_agent.journal import Journal
from node_agent.journal_records import Accepted, Reported, Started
from node_agent.protocol import HandedOutTask, TaskType
from node_agent.site.admission import AdmittedBmcTask, SiteTrust, admit
from node_agent.site.crash_points import CrashPoint, pass_point
from node_agent.site.effects import BmcEffects, Order
from node_agent.site.lease import Lease, LeaseEnded
from node_agent.site.metrics import SiteMetrics
from node_agent.wire.sites import BmcTaskAnswer, BmcTaskFailure, BmcTaskReport, BmcTasks

log = structlog.get_logger("node_agent.site.runner")

RETRY_SECONDS_MAX = 5.0
UNTRUSTED_PAUSE_SECONDS = 5.0
FULL_WAIT_SECONDS = 1.0
"""How long one request waits while every slot but those of `metal.reach` is taken: one may be free any time."""


class Runner:
    """Serves one lease. `trust` may be replaced while it runs."""

    def __init__(
        self, trust: SiteTrust, run_id: UUID, lease: Lease, journal: Journal, clock: ServerClock, effects: BmcEffects,
        connection: NodeConnection, metrics: SiteMetrics, sessions: MachineSessions, *, tasks_max: int, wait_seconds: float,
    ) -> None:  # fmt: skip
        self.trust = trust
        self.keys_wanted = asyncio.Event()
        self._run_id = run_id
        self._lease = lease
        self._fence = lease.fence
        self._journal = journal
        self._clock = clock
        self._effects = effects
        self._connection = connection
        self._metrics = metrics
        self._sessions = sessions
        self._tasks_max = tasks_max
        self._wait_seconds = wait_seconds
        self._running: dict[UUID, asyncio.Task[None]] = {}
        self._machines: dict[UUID, asyncio.Lock] = {}
        self._reaching: dict[UUID, UUID] = {}
        """Running tasks of the type `metal.reach`, by machine."""

    async def serve(self) -> None:
        """Take and run tasks until the server says that the lease has ended. Raises JournalUnwritable."""
        for task in self._journal.state.live():
            log.warning("bmc_task_left", task_id=str(task.task_id), began=task.started)
            self._journal.append(Reported(task_id=task.task_id))
        await self._journal.sync()
        async with asyncio.TaskGroup() as group:
            while await self._take(group):
                pass
            for running in self._running.values():
                running.cancel()
            self._sessions.cancel()

    async def _take(self, group: asyncio.TaskGroup) -> bool:
        """Take tasks once; False if the lease has ended."""
        reaching = len(self._reaching)
        free, reach_free = self._tasks_max - len(self._running) + reaching, self._tasks_max - reaching
        if free <= 0 and reach_free <= 0:
            await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
            return True
        wait_seconds = self._wait_seconds if free > 0 else min(FULL_WAIT_SECONDS, self._wait_seconds)
        params = [
            ("run_id", str(self._run_id)), ("lease_fence", str(self._fence)), ("timeout_seconds", str(wait_seconds)),
            ("limit", str(max(0, free))), ("reach_limit", str(max(0, reach_free))),
            ("console_limit", str(self._sessions.free)),
            *(("known", str(task)) for task in self._running),
        ]  # fmt: skip
        asked_at = time.monotonic()
        try:
            answer = await self._connection.get("/site/v1/tasks/wait", params, BmcTasks, wait_seconds)
        except (Unreachable, CredentialsRefused, RequestRefused) as error:
            log.warning("request_failed", request="tasks", why=str(error))
            await asyncio.sleep(1.0)
            return True
        if not answer.held:
            return False
        begun = [await self._begin(group, handed) for handed in answer.tasks]
        if not any(begun) and time.monotonic() - asked_at < wait_seconds / 2:
            await asyncio.sleep(UNTRUSTED_PAUSE_SECONDS if begun else 1.0)
        return True

    async def _begin(self, group: asyncio.TaskGroup, handed: HandedOutTask) -> bool:
        match admit(handed, self.trust, self._journal.state, self._clock):
            case Untrusted(reason):
                self._metrics.rejected.labels(reason).inc()
                log.error("envelope_rejected", task_id=str(handed.task_id), reason=reason)
                if reason == "unknown_key":
                    self.keys_wanted.set()
                return False
            case Refused(body, detail):
                log.warning("task_refused", task_id=str(body.task_id), fence=body.fence, why=detail)
                if body.type is TaskType.METAL_CONSOLE:
                    return True  # its session waits for nothing but a connection, and ends without one
                failure = BmcTaskFailure(code="task_refused", detail=detail[:400])
                report = BmcTaskReport(fence=body.fence, lease_fence=self._fence, outcome="failed", failure=failure)
                self._start(group, body.task_id, self._deliver(body.task_id, report))
            case AdmittedBmcTask(body, parameters) if body.type is TaskType.METAL_CONSOLE:
                self._sessions.begin(group, Order(body, parameters, self._fence), self._effects)
            case AdmittedBmcTask() as admitted:
                self._journal.append(Accepted(envelope=handed.envelope))
                await self._journal.sync()
                pass_point(CrashPoint.TASK_AFTER_ACCEPTED)
                await self._end_reach(admitted.body.node_id)
                if admitted.body.type is TaskType.METAL_REACH:
                    self._reaching[admitted.body.node_id] = handed.task_id
                self._start(group, handed.task_id, self._run(admitted))
        return True

    async def _end_reach(self, node_id: UUID) -> None:
        """End the wait for the machine's SSH server: a machine gets another task only once that one has ended."""
        before = self._reaching.get(node_id)
        if before is None:
            return
        log.info("bmc_task_superseded", task_id=str(before), node_id=str(node_id))
        running = self._running[before]
        running.cancel()
        await asyncio.wait([running])
        self._journal.append(Reported(task_id=before))
        await self._journal.sync()

    def _start(self, group: asyncio.TaskGroup, task_id: UUID, work: Coroutine[None, None, None]) -> None:
        running = group.create_task(work)
        self._running[task_id] = running
        self._metrics.running.set(len(self._running))
        running.add_done_callback(lambda _: self._ended(task_id))

    def _ended(self, task_id: UUID) -> None:
        self._running.pop(task_id, None)
        self._reaching = {node: task for node, task in self._reaching.items() if task != task_id}
        self._metrics.running.set(len(self._running))

    async def _run(self, admitted: AdmittedBmcTask) -> None:
        body = admitted.body
        async with self._machines.setdefault(body.node_id, asyncio.Lock()):
            self._journal.append(Started(task_id=body.task_id))
            await self._journal.sync()
            try:
                async with self._sessions.ended(body.node_id, body.type):
                    self._lease.require(self._fence)
                    report = await self._effects.carry_out(Order(body, admitted.parameters, self._fence))
            except LeaseEnded as ended:
                log.warning("bmc_task_left", task_id=str(body.task_id), why=str(ended))
                return
            code = report.failure.code if report.failure else None
            self._metrics.tasks.labels(body.type, report.outcome).inc()
            log.info(
                "bmc_task_ended", task_id=str(body.task_id), type=body.type, node_id=str(body.node_id),
                outcome=report.outcome, code=code,
            )  # fmt: skip
        await self._deliver(body.task_id, report)

    async def _deliver(self, task_id: UUID, report: BmcTaskReport) -> None:
        """Send the report until it is acknowledged. The end of the lease cancels it."""
        backoff = Backoff(most_seconds=RETRY_SECONDS_MAX)
        while True:
            pass_point(CrashPoint.REPORT_BEFORE_SENT)
            try:
                answer = await self._connection.post(f"/site/v1/tasks/{task_id}/result", report, BmcTaskAnswer)
            except (Unreachable, CredentialsRefused) as error:
                log.warning("report_not_delivered", task_id=str(task_id), why=str(error))
                await asyncio.sleep(backoff.next_seconds())
                continue
            except RequestRefused as refused:
                log.error("report_refused", task_id=str(task_id), why=str(refused))
                await asyncio.sleep(UNTRUSTED_PAUSE_SECONDS)  # it may be handed out again at once
            else:
                log.info("reported", task_id=str(task_id), applied=answer.applied, reason=answer.reason)
            pass_point(CrashPoint.REPORT_AFTER_ANSWER)
            self._journal.append(Reported(task_id=task_id))
            await self._journal.sync()
            return
