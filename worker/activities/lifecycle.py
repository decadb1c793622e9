"""The activities of an allocation's lifecycle. Each runs one command, which may be repeated safely."""

from __future__ import annotations

from uuid import UUID

from temporalio import activity

from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.verbs import begin_verb, finish_verb
from orchestrator.allocations.outcomes import Begun, Concluded, Retry, Superseded, Waiting
from orchestrator.operations.execution import Context
from worker.activities.messages import StepInput, StepResult
from worker.metrics import COMMAND_SECONDS, CONCLUSIONS, FAILURES, TOOK_SECONDS, VERBS


class LifecycleActivities:
    """The activities with the context that their commands need; one instance per process.

    The activities' names are stored in workflow histories: do not rename the methods.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    @activity.defn
    async def begin_provisioning(self, step: StepInput) -> StepResult:
        """Move `requested` to `provisioning` and issue the node's task."""
        with COMMAND_SECONDS.labels("begin_provisioning").time():
            return _result(await begin_provisioning(self._context, UUID(step.allocation_id), step.notify))

    @activity.defn
    async def finish_provisioning(self, step: StepInput) -> StepResult:
        """Move `provisioning` to `active` or `failed` according to the task's row."""
        with COMMAND_SECONDS.labels("finish_provisioning").time():
            return _result(await finish_provisioning(self._context, UUID(step.allocation_id)))

    @activity.defn
    async def begin_release(self, step: StepInput) -> StepResult:
        """Issue the task of one cleanup attempt."""
        with COMMAND_SECONDS.labels("begin_release").time():
            return _result(await begin_release(self._context, UUID(step.allocation_id), step.notify))

    @activity.defn
    async def finish_release(self, step: StepInput) -> StepResult:
        """Conclude a cleanup attempt according to the task's row."""
        with COMMAND_SECONDS.labels("finish_release").time():
            return _result(await finish_release(self._context, UUID(step.allocation_id), step.notify))

    @activity.defn
    async def begin_verb(self, step: StepInput) -> StepResult:
        """Issue the task of the ordered verb."""
        with COMMAND_SECONDS.labels("begin_verb").time():
            return _result(await begin_verb(self._context, UUID(step.allocation_id), step.notify))

    @activity.defn
    async def finish_verb(self, step: StepInput) -> StepResult:
        """Conclude the verb according to the task's row."""
        with COMMAND_SECONDS.labels("finish_verb").time():
            outcome = await finish_verb(self._context, UUID(step.allocation_id))
        if isinstance(outcome, Concluded):
            VERBS.labels(outcome.code or "").inc()
            return StepResult("concluded", state=outcome.state.value, code=outcome.code)
        return _result(outcome)


def _result(outcome: Begun | Superseded | Waiting | Retry | Concluded) -> StepResult:
    match outcome:
        case Begun():
            return StepResult("begun", seconds=outcome.wait_seconds, task_id=str(outcome.task_id))
        case Superseded():
            return StepResult("superseded", state=None if outcome.state is None else outcome.state.value)
        case Waiting():
            return StepResult("waiting", seconds=outcome.seconds)
        case Retry():
            return StepResult("retry", seconds=outcome.after_seconds)
        case Concluded():
            _count(outcome)
            return StepResult("concluded", state=outcome.state.value, code=outcome.code, cleanup=outcome.cleanup)


def _count(outcome: Concluded) -> None:
    if outcome.took_seconds is not None:
        TOOK_SECONDS[outcome.state.value].observe(outcome.took_seconds)
    if outcome.repeated:
        return
    CONCLUSIONS.labels(outcome.state.value, outcome.code or "").inc()
    if outcome.code is not None:
        FAILURES.labels(outcome.code).inc()
