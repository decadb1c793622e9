"""Orphans: what a node holds although the control plane does not know it, or knows it as ended and proven. Pure.

reported -> adopted | destroying     an admin decides
adopted -> destroying                an admin decides otherwise
adopted -> reported                  the allocation that it was adopted for is over: an operator must decide again
destroying -> destroyed              proven by the node
destroying -> reported               every attempt failed: an operator must decide again
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from berth.process.json_objects import JsonObject
from orchestrator.allocations.rules import is_proven
from orchestrator.tasks.states import LIVE_TASK_STATES, TaskState


class OrphanState(StrEnum):
    """The state of an orphan."""

    REPORTED = "reported"
    ADOPTED = "adopted"
    DESTROYING = "destroying"
    DESTROYED = "destroyed"


class DestroyStep(StrEnum):
    """What is to be done next about an orphan that is being destroyed."""

    WAIT = "wait"
    EXPIRE = "expire"
    ISSUE = "issue"
    CONCLUDE = "conclude"
    GIVE_UP = "give_up"


@dataclass(frozen=True, slots=True)
class DestroyTask:
    """The task issued last for this decision. `overdue`: its time is up."""

    state: TaskState
    overdue: bool
    result: JsonObject | None


def next_step(task: DestroyTask | None, attempts: int, attempts_max: int, *, disturbs: bool) -> DestroyStep:
    """What follows. `disturbs`: a live allocation's task is under way on the same slots, which a newer fence would end."""
    if task is not None and task.state in LIVE_TASK_STATES:
        return DestroyStep.EXPIRE if task.overdue else DestroyStep.WAIT
    if task is not None and task.state is TaskState.COMPLETED and task.result is not None and is_proven(task.result):
        return DestroyStep.CONCLUDE
    if attempts >= attempts_max:
        return DestroyStep.GIVE_UP
    return DestroyStep.WAIT if disturbs else DestroyStep.ISSUE


def slots_kept(reported: list[int], known: list[int], slot_count: int) -> list[int]:
    """The slots to keep out of service: those the node names and named before; every slot if it cannot say which."""
    named = sorted({slot for slot in [*reported, *known] if 0 <= slot < slot_count})
    return named or list(range(slot_count))
