"""One task's effect on the driver, from order to report: the only place where driver failures become reports.

Whatever goes wrong in a provision, what it left is cleaned up before the report is made (P6). An unforeseen exception
of the driver is a failed task with code `driver_error`, never a dead agent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

import structlog

from node_agent.admission import PROVISIONS, RELEASES
from node_agent.crash_points import CrashPoint, reach
from node_agent.drivers.interface import Driver, DriverFailure, ProvisionOrder, ReleaseOrder
from node_agent.metrics import AgentMetrics
from node_agent.protocol import (
    FailureCode,
    ProvisionParameters,
    ReleaseParameters,
    ReleaseResult,
    ResultReport,
    TaskBody,
    TaskType,
)
from node_agent.reporter import completed, failed

log = structlog.get_logger("node_agent.effects")

PhaseListener = Callable[[str, str], None]


class Effects:
    """Carries out tasks on one driver."""

    def __init__(self, driver: Driver, metrics: AgentMetrics) -> None:
        self._driver = driver
        self._metrics = metrics

    async def carry_out(self, body: TaskBody, interrupted: asyncio.Event, on_phase: PhaseListener) -> ResultReport:
        """Execute `body` and return its report. If the agent is stopping, the effect is left as it is:
        the next agent process finds it in the journal."""
        try:
            if body.type in PROVISIONS:
                return await self._provision(body, interrupted, self._timed(on_phase))
            if body.type in RELEASES:
                return await self._release(body, self._timed(on_phase))
            return await self._probe(body)
        except DriverFailure as failure:
            return failed(body.fence, failure.code, failure.detail)
        except Exception as error:
            log.exception("driver_error", task_id=str(body.task_id), type=body.type)
            return failed(body.fence, FailureCode.DRIVER_ERROR, f"{type(error).__name__}: {error}")

    async def undo(self, body: TaskBody, why: str) -> ResultReport:
        """What an interrupted task is reported as, after its traces are removed. Probes leave none."""
        detail = why
        if body.type in PROVISIONS and body.allocation_id is not None:
            detail = await self._cleaned_up(body.allocation_id, why)
        return failed(body.fence, FailureCode.INTERRUPTED, detail)

    async def _provision(self, body: TaskBody, interrupted: asyncio.Event, on_phase: PhaseListener) -> ResultReport:
        order = ProvisionOrder(_allocation(body), body.fence, ProvisionParameters.model_validate(body.parameters))
        work = asyncio.create_task(self._driver.provision(order, on_phase))
        interruption = asyncio.create_task(interrupted.wait())
        try:
            await asyncio.wait((work, interruption), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return completed(body.fence, work.result().model_dump(mode="json"))
            await _end(work)
            return await self.undo(body, "a task with a newer fence took over")
        except DriverFailure as failure:
            return failed(body.fence, failure.code, await self._cleaned_up(order.allocation_id, failure.detail))
        except Exception as error:
            log.exception("driver_error", task_id=str(body.task_id), type=body.type)
            detail = await self._cleaned_up(order.allocation_id, f"{type(error).__name__}: {error}")
            return failed(body.fence, FailureCode.DRIVER_ERROR, detail)
        finally:
            interruption.cancel()
            await _end(work)

    async def _release(self, body: TaskBody, on_phase: PhaseListener) -> ResultReport:
        order = ReleaseOrder(_allocation(body), body.fence, ReleaseParameters.model_validate(body.parameters))
        result = await self._driver.release(order, on_phase)
        if result.released and result.wiped and result.leases_released:
            return completed(body.fence, result.model_dump(mode="json"))
        # A report that says "completed" of a release that is not would free the units (TRAPS, failure 14).
        return failed(body.fence, FailureCode.CLEANUP_FAILED, _not_proven(result))

    async def _probe(self, body: TaskBody) -> ResultReport:
        if body.type is TaskType.TOPOLOGY_DISCOVER:
            return completed(body.fence, await self._driver.facts())
        inventory = await self._driver.inventory()
        return completed(
            body.fence,
            {
                "healthy": not inventory.dead,
                "driver": self._driver.name,
                "allocations": [str(allocation) for allocation in inventory.allocations],
                "dead": [str(allocation) for allocation in inventory.dead],
                "leased_slots": {str(slot): str(allocation) for slot, allocation in inventory.leased_slots.items()},
            },
        )

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

    def _timed(self, on_phase: PhaseListener) -> PhaseListener:
        last = time.monotonic()

        def timed(phase: str, detail: str) -> None:
            nonlocal last
            reach(CrashPoint.EFFECT_AT_PHASE)
            now = time.monotonic()
            self._metrics.phases.labels(phase).observe(now - last)
            last = now
            on_phase(phase, detail)

        return timed


def _allocation(body: TaskBody) -> UUID:
    if body.allocation_id is None:
        raise DriverFailure(FailureCode.TASK_REFUSED, f"{body.type} names no allocation")
    return body.allocation_id


def _not_proven(result: ReleaseResult) -> str:
    """What a release did not prove, as a sentence."""
    facts = {
        "hard stopped": result.hard_stopped, "wiped": result.wiped, "leases released": result.leases_released,
    }  # fmt: skip
    said = ", ".join(f"{fact}: {'yes' if holds else 'no'}" for fact, holds in facts.items())
    problem = result.evidence.get("problem")
    return f"not proven ({said})" if problem is None else f"not proven ({said}): {problem}"


async def _end(work: asyncio.Task[object]) -> None:
    """Cancel `work` and wait until it has really ended, whatever it ends with."""
    work.cancel()
    await asyncio.wait((work,))
