"""Outcomes that a lifecycle command returns to its workflow: values, never exceptions. Durations are seconds by the database."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from orchestrator.allocations.states import AllocationState


@dataclass(frozen=True, slots=True)
class Begun:
    """A task is issued; wait for it at most `wait_seconds`. `repeated`: an earlier call issued it."""

    task_id: UUID
    wait_seconds: float
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Superseded:
    """The allocation changed state, or another workflow has taken over: this workflow has nothing left to do."""

    state: AllocationState | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The task still runs; its deadline is in `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed; begin the next after `after_seconds`."""

    after_seconds: float


@dataclass(frozen=True, slots=True)
class Concluded:
    """This part of the lifecycle is over. `code`: the failure, if it failed. `cleanup`: a cleanup must follow.

    `repeated`: an earlier call concluded it, so it is not counted again. `took_seconds`: from the request to `active`, or
    from `releasing` to `released`, for metrics.
    """

    state: AllocationState
    code: str | None = None
    cleanup: bool = False
    repeated: bool = False
    took_seconds: float | None = field(default=None, compare=False)
