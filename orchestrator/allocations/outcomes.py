"""What a lifecycle command answers to its workflow: values, never exceptions. Durations: seconds, by the database."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from orchestrator.allocations.states import AllocationState


@dataclass(frozen=True, slots=True)
class Begun:
    """A task is issued. Wait for it at most `wait_seconds`; `repeated` if an earlier call had issued it."""

    task_id: UUID
    wait_seconds: float
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Superseded:
    """The allocation has gone elsewhere, or another workflow has taken over: there is nothing left to do here."""

    state: AllocationState | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The task is still running and has `seconds` left."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt came to nothing; begin another after `after_seconds`."""

    after_seconds: float


@dataclass(frozen=True, slots=True)
class Concluded:
    """This part of the lifecycle is over. `code` says why, where it went wrong; `cleanup` that cleanup must follow.

    `repeated` if an earlier call had concluded it, so that nobody counts it twice. `took_seconds` is for measurement:
    from the request to `active`, or from `releasing` to `released`.
    """

    state: AllocationState
    code: str | None = None
    cleanup: bool = False
    repeated: bool = False
    took_seconds: float | None = field(default=None, compare=False)
