"""The four steps of an allocation's lifecycle that the worker takes. Each may be repeated without harm."""

from __future__ import annotations

from uuid import UUID

from temporalio import activity

from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.outcomes import Begun, Concluded, Retry, Superseded, Waiting
from orchestrator.operations.execution import Context
from worker.activities.messages import Order, Step
from worker.metrics import COMMAND_SECONDS, CONCLUSIONS, FAILURES, TOOK_SECONDS


class LifecycleActivities:
    """Holds what commands need; constructed once per process."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @activity.defn
    async def begin_provisioning(self, order: Order) -> Step:
        """requested -> provisioning, with the node's task issued."""
        with COMMAND_SECONDS.labels("begin_provisioning").time():
            return _step(await begin_provisioning(self._context, UUID(order.allocation_id), order.notify))

    @activity.defn
    async def finish_provisioning(self, order: Order) -> Step:
        """provisioning -> active or failed, by the task's row."""
        with COMMAND_SECONDS.labels("finish_provisioning").time():
            return _step(await finish_provisioning(self._context, UUID(order.allocation_id)))

    @activity.defn
    async def begin_release(self, order: Order) -> Step:
        """Begin an attempt to clean up."""
        with COMMAND_SECONDS.labels("begin_release").time():
            return _step(await begin_release(self._context, UUID(order.allocation_id), order.notify))

    @activity.defn
    async def finish_release(self, order: Order) -> Step:
        """Conclude an attempt to clean up, by the task's row."""
        with COMMAND_SECONDS.labels("finish_release").time():
            return _step(await finish_release(self._context, UUID(order.allocation_id), order.notify))


def _step(outcome: Begun | Superseded | Waiting | Retry | Concluded) -> Step:
    match outcome:
        case Begun():
            return Step("begun", seconds=outcome.wait_seconds, task_id=str(outcome.task_id))
        case Superseded():
            return Step("superseded", state=None if outcome.state is None else outcome.state.value)
        case Waiting():
            return Step("waiting", seconds=outcome.seconds)
        case Retry():
            return Step("retry", seconds=outcome.after_seconds)
        case Concluded():
            if not outcome.repeated:
                CONCLUSIONS.labels(outcome.state.value, outcome.code or "").inc()
            if outcome.took_seconds is not None:
                TOOK_SECONDS[outcome.state.value].observe(outcome.took_seconds)
            if outcome.code is not None and not outcome.repeated:
                FAILURES.labels(outcome.code).inc()
            return Step("concluded", state=outcome.state.value, code=outcome.code, cleanup=outcome.cleanup)
