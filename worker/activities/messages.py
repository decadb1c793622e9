"""Inputs and results of activities: plain values, because workflow histories store them. They contain no secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StepKind = Literal["begun", "superseded", "waiting", "retry", "concluded"]


@dataclass(frozen=True)
class StepInput:
    """One step of an allocation's lifecycle, taken for the workflow whose id is `notify`."""

    allocation_id: str
    notify: str


@dataclass(frozen=True)
class StepResult:
    """The outcome of a step (orchestrator/allocations/outcomes.py) as plain values.

    `seconds` is how long to wait: for the task if `begun` or `waiting`, before the next attempt if `retry`.
    """

    kind: StepKind
    seconds: float = 0.0
    task_id: str | None = None
    state: str | None = None
    code: str | None = None
    cleanup: bool = False
