"""A driver that does nothing and says it is done: what remains is the cost of everything around it.

For the latency benchmark (DESIGN §10) and for tests of the executor. It keeps its allocations in memory alone.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from node_agent.drivers.interface import Held, Inventory, PhaseReporter, ProvisionOrder, ReleaseOrder
from node_agent.protocol import Connection, ProvisionResult, ReleaseResult


class NoopDriver:
    """Answers at once with a plausible result; its guests accept no logins."""

    name = "noop"

    def __init__(self, advertised_host: str) -> None:
        self._advertised_host = advertised_host
        self._held: dict[UUID, list[int]] = {}

    async def start(self) -> None:
        """Nothing to make ready."""

    async def resume(self) -> list[UUID]:
        """Nothing survives in memory."""
        return []

    async def provision(self, order: ProvisionOrder, report_phase: PhaseReporter) -> ProvisionResult:
        """Remember the allocation."""
        self._held[order.allocation_id] = order.parameters.slots
        connection = Connection(host=self._advertised_host, port=22, user="tenant", host_key="ssh-ed25519 none")
        return ProvisionResult(
            connection=connection, image_sha256=order.parameters.image.sha256, evidence={"driver": self.name}
        )

    async def release(self, order: ReleaseOrder, report_phase: PhaseReporter) -> ReleaseResult:
        """Forget the allocation."""
        known = self._held.pop(order.allocation_id, None)
        evidence = {"driver": self.name, "was_there": known is not None}
        return ReleaseResult(released=True, hard_stopped=False, wiped=True, leases_released=True, evidence=evidence)

    async def cleanup(self, allocation_id: UUID) -> None:
        """Forget the allocation."""
        self._held.pop(allocation_id, None)

    async def inventory(self) -> Inventory:
        """What is remembered."""
        leased = {slot: allocation for allocation, slots in self._held.items() for slot in slots}
        held = [Held(allocation, slots, None) for allocation, slots in self._held.items()]
        return Inventory(allocations=list(self._held), leased_slots=leased, held=held)

    async def tend_leases(self) -> list[int]:
        """There are no leases."""
        return []

    async def facts(self) -> dict[str, Any]:
        """Nothing is known of the node."""
        return {"driver": self.name}

    async def stop(self, grace_seconds: float) -> None:
        """Nothing runs."""
