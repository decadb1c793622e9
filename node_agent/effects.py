"""One task's effect on the driver, from order to report: the only place where driver failures become reports.

Whatever goes wrong in a provision, what it left is cleaned up before the report is made (P6). An unforeseen exception
of the driver is a failed task with code `driver_error`, never a dead agent.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

import structlog

from node_agent.attestation.attesting import attest
from node_agent.attestation.tpm import Tpm
from node_agent.burn_in.burn_in import BurnIn
from node_agent.clock import ServerClock
from node_agent.consoles.consoles import Consoles
from node_agent.crash_points import CrashPoint, reach
from node_agent.deploy_system.effects.tools import real_host
from node_agent.drivers.contract import Driver, DriverFailure, ProvisionOrder, ReleaseOrder, Verb, VerbOrder
from node_agent.drivers.looking import Look
from node_agent.drivers.performing import Listener, perform, why_not_proven
from node_agent.drivers.restarting import Restarts
from node_agent.gpu_reset.gpu_reset import GpuReset
from node_agent.maintenance.plugins import MaintenancePlugins
from node_agent.metrics import AgentMetrics
from node_agent.probes.probe import Prober
from node_agent.problems import JournalUnwritable
from node_agent.protocol import (
    PROVISIONS,
    RELEASES,
    VERBS,
    FailureCode,
    ProvisionParameters,
    RebuildParameters,
    ReleaseParameters,
    ResultReport,
    TaskBody,
    TaskType,
    VerbParameters,
)
from node_agent.reporter import completed, failed
from node_agent.wiping.proofs import WipeProofs
from node_agent.wiping.signing import StatementSigner
from node_agent.wire.attestations import AttestParameters
from node_agent.wire.burn_in import BurnInParameters
from node_agent.wire.console import ConsoleParameters
from node_agent.wire.gpu_reset import GpuResetParameters
from node_agent.wire.maintenance import MaintenancePluginParameters, MaintenancePluginReport

log = structlog.get_logger("node_agent.effects")

Result = TypeVar("Result")

Offer = Callable[[str, str], None]
"""Sends a phase and its detail when possible. Never blocks, never raises."""

_TAKEN_OVER = "a task with a newer fence took over"
PROGRESS_FIRST_SECONDS = 10.0
PROGRESS_REPORTS_MAX = 16
"""Of one task: the control plane keeps 64 entries of a task, phases included."""


class Effects:
    """Carries out tasks on one driver."""

    def __init__(
        self, driver: Driver, metrics: AgentMetrics, restarts: Restarts, proofs: WipeProofs, statements: StatementSigner,
        prober: Prober, burn_in: BurnIn, gpu_reset: GpuReset, clock: ServerClock, consoles: Consoles,
        plugins: MaintenancePlugins, tpm: Tpm | None = None,
    ) -> None:  # fmt: skip
        self._consoles = consoles
        self._driver = driver
        self._look = Look(driver)
        self._prober = prober
        self._burn_in = burn_in
        self._gpu_reset = gpu_reset
        self._plugins = plugins
        self._tpm = tpm
        self._clock = clock
        self._restarts = restarts
        self._metrics = metrics
        self._proofs = proofs
        self._statements = statements

    async def carry_out(self, body: TaskBody, interrupted: asyncio.Event, offer: Offer) -> ResultReport:
        """Execute `body` and return its report. If the agent is stopping, the effect is left as it is:
        the next agent process finds it in the journal. Raises JournalUnwritable."""
        self._consoles.end(body.allocation_id)
        async with self._restarts.held_off(body.allocation_id):
            return await self._carry_out(body, interrupted, offer)

    async def _carry_out(self, body: TaskBody, interrupted: asyncio.Event, offer: Offer) -> ResultReport:
        try:
            if body.type in PROVISIONS:
                return await self._provision(body, interrupted, TimedPhases(self._metrics, offer))
            if body.type in RELEASES:
                return await self._release(body, TimedPhases(self._metrics, offer))
            if body.type in VERBS:
                return await self._verb(body, interrupted, TimedPhases(self._metrics, offer))
            return await self._probe(body)
        except DriverFailure as failure:
            return failed(body.fence, failure.code, failure.detail)
        except JournalUnwritable:
            raise
        except Exception as error:
            log.exception("driver_error", task_id=str(body.task_id), type=body.type)
            return failed(body.fence, FailureCode.DRIVER_ERROR, f"{type(error).__name__}: {error}")

    async def undo(self, body: TaskBody, why: str) -> ResultReport:
        """What an interrupted task is reported as, after its traces are removed. Probes leave none.

        A plugin that had declared a reboot has completed if the node has rebooted."""
        self._consoles.end(body.allocation_id)
        async with self._restarts.held_off(body.allocation_id):
            return await self._undo(body, why)

    async def _undo(self, body: TaskBody, why: str) -> ResultReport:
        detail = why
        if body.type is TaskType.MAINTENANCE_PLUGIN:
            order = MaintenancePluginParameters.model_validate(body.parameters)
            if (report := await self._plugins.after_restart(body.task_id, order.plugin)) is not None:
                return _reported(body, report)
        if body.type in PROVISIONS and body.allocation_id is not None:
            detail = await self._cleaned_up(body.allocation_id, why)
        return failed(body.fence, FailureCode.INTERRUPTED, detail)

    async def _provision(self, body: TaskBody, interrupted: asyncio.Event, listener: Listener) -> ResultReport:
        order = ProvisionOrder(_allocation(body), body.fence, ProvisionParameters.model_validate(body.parameters))
        try:
            result = await _unless(interrupted, perform(self._driver.provision(order), listener))
            if result is not None:
                return completed(body.fence, result.model_dump(mode="json"))
            return await self._undo(body, _TAKEN_OVER)
        except DriverFailure as failure:
            return failed(body.fence, failure.code, await self._cleaned_up(order.allocation_id, failure.detail))
        except Exception as error:
            log.exception("driver_error", task_id=str(body.task_id), type=body.type)
            detail = await self._cleaned_up(order.allocation_id, f"{type(error).__name__}: {error}")
            return failed(body.fence, FailureCode.DRIVER_ERROR, detail)

    async def _verb(self, body: TaskBody, interrupted: asyncio.Event, listener: Listener) -> ResultReport:
        result = await _unless(interrupted, perform(self._driver.verb(_verb_order(body)), listener))
        if result is None:
            return failed(body.fence, FailureCode.INTERRUPTED, _TAKEN_OVER)
        return completed(body.fence, result.model_dump(mode="json"))

    async def _release(self, body: TaskBody, listener: Listener) -> ResultReport:
        order = ReleaseOrder(_allocation(body), body.fence, ReleaseParameters.model_validate(body.parameters))
        plan = self._proofs.keeping(self._driver.release(order), order.allocation_id)
        result = self._proofs.completed(await perform(plan, listener), order.allocation_id)
        unproven = [wipe for wipe in result.evidence.get("devices", []) if not wipe["proven"]]
        if result.released and result.wiped and result.leases_released and not unproven:
            return completed(body.fence, self._statements.signed(body, result).model_dump(mode="json"))
        # A report that says "completed" of a release that is not would free the units (TRAPS, failure 14).
        return failed(body.fence, FailureCode.CLEANUP_FAILED, why_not_proven(result))

    async def _probe(self, body: TaskBody) -> ResultReport:
        if body.type is TaskType.CONSOLE_ATTACH:
            order = ConsoleParameters.model_validate(body.parameters)
            return completed(body.fence, (await self._consoles.serve(body, order)).model_dump(mode="json"))
        if body.type is TaskType.ATTEST:
            nonce = AttestParameters.model_validate(body.parameters).nonce
            return completed(body.fence, json.loads((await attest(self._tpm, nonce, real_host())).canonical()))
        if body.type is TaskType.BURN_IN:
            return await self._burned_in(body)
        if body.type is TaskType.GPU_RESET:
            return await self._gpus_reset(body)
        if body.type is TaskType.MAINTENANCE_PLUGIN:
            return await self._plugin_run(body)
        if body.type is TaskType.TOPOLOGY_DISCOVER:
            return completed(body.fence, json.loads((await self._driver.topology()).canonical()))
        return completed(body.fence, json.loads((await self._prober.probe()).canonical()))

    async def _burned_in(self, body: TaskBody) -> ResultReport:
        order = BurnInParameters.model_validate(body.parameters)
        occupied = await self._is_occupied()
        seconds = (body.expires_at - self._clock.now()).total_seconds()
        report = await self._burn_in.run(order, seconds, occupied=occupied)
        return completed(body.fence, json.loads(report.canonical()))

    async def _gpus_reset(self, body: TaskBody) -> ResultReport:
        order = GpuResetParameters.model_validate(body.parameters)
        seconds = (body.expires_at - self._clock.now()).total_seconds()
        report = await self._gpu_reset.run(order, seconds, self._held_slots)
        return completed(body.fence, json.loads(report.canonical()))

    async def _plugin_run(self, body: TaskBody) -> ResultReport:
        order = MaintenancePluginParameters.model_validate(body.parameters)
        occupied = await self._is_occupied()
        seconds = (body.expires_at - self._clock.now()).total_seconds()
        report = await self._plugins.run(body.task_id, order, seconds, occupied=occupied)
        return _reported(body, report)

    async def _held_slots(self) -> frozenset[int] | None:
        inventory = await self._look()
        if inventory is None:
            return None  # libvirtd hangs or is gone: the task ends, and the next one can begin
        if not all(held.slots for held in inventory.held):
            return None  # of one whose record is lost any slot may be
        return frozenset(inventory.leased_slots).union(*(held.slots for held in inventory.held))

    async def _is_occupied(self) -> bool:
        inventory = await self._look()
        return inventory is None or bool(inventory.allocations)  # not known: the smaller bounds harm no guest

    async def _cleaned_up(self, allocation_id: UUID, detail: str) -> str:
        try:
            await self._driver.cleanup(allocation_id)
        except DriverFailure as failure:
            log.error("cleanup_failed", allocation_id=str(allocation_id), why=failure.detail)
            return f"{detail}; and what it left could not be removed: {failure.detail}"
        except Exception as error:
            log.exception("cleanup_failed", allocation_id=str(allocation_id))
            return f"{detail}; and what it left could not be removed: {type(error).__name__}: {error}"
        return detail


class TimedPhases:
    """Passes the phases of one task on, and measures them.

    Of a long phase it reports the share that is done as `<phase>.progress`: first after ten seconds, then after twice as long
    each time, so that a task of any length stays within the entries that the control plane keeps.
    """

    def __init__(self, metrics: AgentMetrics, offer: Offer) -> None:
        self._metrics = metrics
        self._offer = offer
        self._last = time.monotonic()
        self._next_report = self._last + PROGRESS_FIRST_SECONDS
        self._pause = PROGRESS_FIRST_SECONDS
        self._reports = 0

    def completed(self, phase: str, detail: str) -> None:
        """Report the phase and measure how long it took."""
        reach(CrashPoint.EFFECT_AT_PHASE)
        now = time.monotonic()
        self._metrics.phases.labels(phase).observe(now - self._last)
        self._last = now
        self._offer(phase, detail)

    def advanced(self, phase: str, share: float, detail: str) -> None:
        """Report the share that is done, if it is time again."""
        now = time.monotonic()
        if now < self._next_report or self._reports >= PROGRESS_REPORTS_MAX:
            return
        self._reports += 1
        self._pause *= 2
        self._next_report = now + self._pause
        self._offer(f"{phase}.progress", f"{share:.0%}: {detail}")


def _allocation(body: TaskBody) -> UUID:
    if body.allocation_id is None:
        raise DriverFailure(FailureCode.TASK_REFUSED, f"{body.type} names no allocation")
    return body.allocation_id


def _reported(body: TaskBody, report: MaintenancePluginReport) -> ResultReport:
    return completed(body.fence, json.loads(report.canonical()))


def _verb_order(body: TaskBody) -> VerbOrder:
    verb = Verb(body.type.removeprefix("allocation."))
    if verb is not Verb.REBUILD:
        wanted = VerbParameters.model_validate(body.parameters)
        return VerbOrder(_allocation(body), body.fence, verb, None, wanted.graceful_seconds, wanted.faults)
    parameters = RebuildParameters.model_validate(body.parameters)
    return VerbOrder(_allocation(body), body.fence, verb, parameters, parameters.graceful_seconds, parameters.faults)


async def _unless(interrupted: asyncio.Event, effect: Coroutine[None, None, Result]) -> Result | None:
    """The result of `effect`; None if it was interrupted before its end, and has ended. Raises what it raises."""
    work = asyncio.create_task(effect)
    interruption = asyncio.create_task(interrupted.wait())
    try:
        await asyncio.wait((work, interruption), return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else None
    finally:
        interruption.cancel()
        await _end(work)


async def _end(work: asyncio.Task[Any]) -> None:
    """Cancel `work` and wait until it has really ended, whatever it ends with."""
    work.cancel()
    await asyncio.wait((work,))
