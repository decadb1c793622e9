"""What the executor asks of a driver, and what every driver guarantees.

- `provision` either returns with the allocation usable and proven, or raises and may leave things behind; the executor
  then calls `cleanup`. Cancelling it is allowed at any await; no thread of it runs on after the cancellation has
  been delivered. If things of the same allocation are there already, they are removed first: the newer fence wins.
- `release` is idempotent, starts from the beginning each time, and says what it could prove (DESIGN §9).
- `cleanup` is `release` without grace: it returns when nothing of the allocation is left, or raises `DriverFailure`.
- `resume` brings back what ran before the agent stopped and adopts what still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from node_agent.protocol import FailureCode, ProvisionParameters, ProvisionResult, ReleaseParameters, ReleaseResult

PhaseReporter = Callable[[str, str], None]
"""Called with a phase that has just been completed and a detail for people. Never blocks, never raises."""


class DriverFailure(Exception):
    """The task failed for a reason that has a stable code."""

    def __init__(self, code: FailureCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


@dataclass(frozen=True)
class ProvisionOrder:
    """One allocation to bring up, and the fence it is brought up under."""

    allocation_id: UUID
    fence: int
    parameters: ProvisionParameters


@dataclass(frozen=True)
class ReleaseOrder:
    """One allocation to take down."""

    allocation_id: UUID
    fence: int
    parameters: ReleaseParameters


@dataclass(frozen=True)
class Held:
    """An allocation that has remains on the node. `slots` is empty and `fence` None if no record names them."""

    allocation_id: UUID
    slots: Sequence[int]
    fence: int | None


@dataclass(frozen=True)
class Inventory:
    """What the driver really holds, from its own records: the basis of heartbeats and of the health probe.

    `held` leaves nothing out: an allocation that is not in it has nothing on this node. `allocations` are those whose
    records can be read; `dead` those of them that should run and do not.
    """

    allocations: list[UUID] = field(default_factory=list)
    dead: list[UUID] = field(default_factory=list)
    leased_slots: dict[int, UUID] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)


class Driver(Protocol):
    """See the module's text for the guarantees."""

    name: str

    async def start(self) -> None:
        """Make ready; nothing of an earlier agent is still starting guests once this returns. Raises CannotStart."""

    async def resume(self) -> list[UUID]:
        """Adopt what runs, start again what should run. Returns the allocations that now run."""

    async def provision(self, order: ProvisionOrder, report_phase: PhaseReporter) -> ProvisionResult:
        """Bring the allocation up. Raises DriverFailure."""

    async def release(self, order: ReleaseOrder, report_phase: PhaseReporter) -> ReleaseResult:
        """Take it down gracefully, then hard; wipe; drop its leases; prove each."""

    async def cleanup(self, allocation_id: UUID) -> None:
        """Remove whatever is there of the allocation. Raises DriverFailure(CLEANUP_FAILED)."""

    async def inventory(self) -> Inventory:
        """Return everything that exists now. Raises OSError if the list would be incomplete."""

    async def tend_leases(self) -> list[int]:
        """Renew the leases of what is there and clear those of what is gone; the slots cleared. Never one in use."""

    async def facts(self) -> dict[str, Any]:
        """What the node is made of, for `slice.topology_discover`."""

    async def stop(self, grace_seconds: float) -> None:
        """The node is going down: stop every guest; `resume` of the next agent starts them again."""
