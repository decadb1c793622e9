"""A driver of a harness in the test's own process, whose plans a test performs itself."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from node_agent.drivers.contract import Driver, GuestState, Plan, ProvisionOrder, ReleaseOrder, Verb, VerbOrder
from node_agent.protocol import ProvisionParameters, ReleaseParameters
from node_agent.settings import Settings
from tests.drivers.harness import Harness, Probe
from tests.drivers.stage import end_processes

SLOT = [2]


class Node:
    """One driver in this process."""

    def __init__(self, harness: Harness, directory: Path) -> None:
        self.state_dir = state_dir = directory / "agent"
        state_dir.mkdir()
        settings = Settings(
            api_url="https://unused", root_keys_file=directory / "unused", agent_state_dir=state_dir,
            sandbox_allowed=True,
        )  # fmt: skip
        self.harness = harness
        self.driver: Driver = harness.driver(settings)
        self.tenant = harness.tenant(directory)
        self.probe: Probe = harness.probe(state_dir, self.tenant)

    def order(self, fence: int = 7, **changes: Any) -> ProvisionOrder:
        parameters = ProvisionParameters.model_validate(self.tenant.provision(SLOT, **changes))
        return ProvisionOrder(uuid.uuid4(), fence, parameters)

    def release(self, order: ProvisionOrder) -> Plan[Any]:
        return self.driver.release(
            ReleaseOrder(order.allocation_id, 8, ReleaseParameters(slots=SLOT, graceful_seconds=2.0))
        )

    def verb(self, order: ProvisionOrder, verb: Verb, **changes: Any) -> Plan[Any]:
        parameters = ProvisionParameters.model_validate(self.tenant.provision(SLOT, **changes))
        return self.driver.verb(VerbOrder(order.allocation_id, 9, verb, parameters, graceful_seconds=2.0))

    async def state(self, order: ProvisionOrder) -> GuestState | None:
        held = {held.allocation_id: held.state for held in (await self.driver.inventory()).held}
        return held.get(order.allocation_id)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Node]:
        await self.driver.start()
        try:
            yield self
        finally:
            await self.driver.stop(0.0)
            end_processes(self.probe)
            self.harness.clean(self.state_dir)


Scenario = Callable[[Node], Awaitable[None]]


def play(harness: Harness, directory: Path, scenario: Scenario) -> None:
    """The scenario on a node of this harness."""

    async def scene() -> None:
        async with Node(harness, directory).running() as node:
            await scenario(node)

    asyncio.run(scene())
