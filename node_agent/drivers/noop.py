"""A driver that does nothing and says it is done: what remains is the cost of everything around it.

For the latency benchmark (DESIGN §10) and for tests of the executor. It keeps its allocations in memory alone, and breaks
the contract in everything that can be seen from outside: tests/drivers uses it to show that its checks find that.
"""

from __future__ import annotations

import os
from uuid import UUID

from node_agent.drivers.contract import (
    ConsoleText,
    DriverFailure,
    GuestState,
    Held,
    Inventory,
    Plan,
    ProvisionOrder,
    ReleaseOrder,
    Verb,
    VerbOrder,
)
from node_agent.protocol import Connection, FailureCode, ProvisionResult, ReleaseResult, VerbResult
from node_agent.wire.topology import Processors, Topology


class NoopDriver:
    """Answers at once with a plausible result; its guests accept no logins."""

    name = "noop"
    verbs: frozenset[Verb] = frozenset()

    def __init__(self, advertised_host: str) -> None:
        self._advertised_host = advertised_host
        self._held: dict[UUID, Held] = {}

    async def start(self) -> None:
        """Nothing to make ready."""

    async def resume(self) -> list[UUID]:
        """Nothing survives in memory."""
        return []

    async def restart(self, allocation_id: UUID) -> bool:
        """No guest ends."""
        return False

    def provision(self, order: ProvisionOrder) -> Plan[ProvisionResult]:
        """Remember the allocation."""

        def remembered() -> ProvisionResult:
            slots = order.parameters.slots
            self._held[order.allocation_id] = Held(order.allocation_id, slots, order.fence, GuestState.RUNNING)
            user = order.parameters.image.login_user
            connection = Connection(host=self._advertised_host, port=22, user=user, host_key="ssh-ed25519 none")
            return ProvisionResult(
                connection=connection, image_sha256=order.parameters.image.sha256, evidence={"driver": self.name}
            )

        return Plan((), remembered)

    def release(self, order: ReleaseOrder) -> Plan[ReleaseResult]:
        """Forget the allocation."""

        def forgotten() -> ReleaseResult:
            known = self._held.pop(order.allocation_id, None)
            evidence = {"driver": self.name, "was_there": known is not None}
            return ReleaseResult(released=True, hard_stopped=False, wiped=True, leases_released=True, evidence=evidence)

        return Plan((), forgotten)

    def verb(self, order: VerbOrder) -> Plan[VerbResult]:
        """There are no verbs."""
        raise DriverFailure(FailureCode.TASK_REFUSED, f"the driver {self.name} has no verb {order.verb}")

    async def cleanup(self, allocation_id: UUID) -> None:
        """Forget the allocation."""
        self._held.pop(allocation_id, None)

    async def inventory(self) -> Inventory:
        """What is remembered."""
        leased = {slot: held.allocation_id for held in self._held.values() for slot in held.slots}
        return Inventory(list(self._held.values()), leased)

    async def tend_leases(self) -> list[int]:
        """There are no leases."""
        return []

    async def topology(self) -> Topology:
        """The architecture and nothing more."""
        return Topology(driver=self.name, processors=Processors(architecture=os.uname().machine))

    async def console(self, allocation_id: UUID, offset: int, bytes_max: int) -> ConsoleText:
        """There are no consoles."""
        raise LookupError(f"no guest runs for allocation {allocation_id}")

    async def stop(self, grace_seconds: float) -> None:
        """Nothing runs."""

    async def close(self) -> None:
        """Nothing is held."""
