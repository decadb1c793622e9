"""A locked allocation as commands decide about it, with its claim and its latest task."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.allocations.failures import may_pass
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.waits import Wait
from orchestrator.catalogue.shapes import Shape
from orchestrator.retries import Retries
from orchestrator.tasks.states import LIVE_TASK_STATES, TaskState


@dataclass(frozen=True, slots=True)
class LatestTask:
    """The latest task of an allocation, live or ended."""

    id: UUID
    type: str
    state: TaskState
    fence: int
    notify: str | None
    attempt: int
    expires_at: datetime
    result: JsonObject | None
    failure_code: str | None
    failure_detail: str | None

    @property
    def live(self) -> bool:
        """Whether a result of the node would still be accepted."""
        return self.state in LIVE_TASK_STATES


@dataclass(frozen=True, slots=True)
class Subject:
    """A locked allocation with its claim and latest task; `clock` is the database's time after the locks."""

    id: UUID
    tenant_id: UUID
    node_id: UUID
    claim_id: int
    state: AllocationState
    row_version: int
    sku: str
    shape: Shape
    gpus: int
    region: str
    price_version: int
    correlation_id: UUID
    requested_at: datetime
    active_at: datetime | None
    releasing_at: datetime | None
    ends_at: datetime | None
    reservation_id: UUID | None
    waits_for: Wait | None
    waits_until: datetime | None
    provision_until: datetime | None
    release_attempts: int
    guest_state: str | None
    guest_verb: str | None
    health: str | None
    fence: int
    claim_closed: bool
    claim_waits_for: Wait | None
    claim_waits_until: datetime | None
    node_online: bool
    clock: datetime
    task: LatestTask | None

    @property
    def name(self) -> str:
        """Its name in events and the audit."""
        return f"allocations/{self.id}"

    def seconds_until(self, deadline: datetime | None) -> float:
        """Seconds until `deadline`, never negative; 0 without a deadline."""
        return 0.0 if deadline is None else max(0.0, (deadline - self.clock).total_seconds())

    def seconds_since(self, instant: datetime | None) -> float | None:
        """Seconds since `instant`, for metrics; None without one."""
        return None if instant is None else (self.clock - instant).total_seconds()

    def may_be_tried_again(self, retries: Retries) -> bool:
        """Whether its provision failed with a transient code, and attempts and time are left."""
        task = self.task
        if task is None or task.live or not may_pass(task.failure_code):
            return False
        return retries.left_after(task.attempt) and self.seconds_until(self.provision_until) > 0
