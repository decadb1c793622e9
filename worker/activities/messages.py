"""What workflows and activities tell each other: plain values, since workflow histories keep them. No secrets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    """A step to take for an allocation, by the workflow `notify`."""

    allocation_id: str
    notify: str


@dataclass(frozen=True)
class Step:
    """What came of a step.

    `kind` is begun, superseded, waiting, retry or concluded (orchestrator/allocations/outcomes.py); `seconds` is how long to
    wait for the task or for the next attempt.
    """

    kind: str
    seconds: float = 0.0
    task_id: str | None = None
    state: str | None = None
    code: str | None = None
    cleanup: bool = False
