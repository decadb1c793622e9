"""The first boot of a guest, as the driver's inventory has it."""

from __future__ import annotations

from node_agent.drivers.contract import ProvisionOrder
from node_agent.wire.first_boot import FirstBoot, FirstBootStatus
from tests.drivers.in_process import Node
from tests.support.waiting import async_wait_for


async def first_boot(node: Node, order: ProvisionOrder) -> FirstBoot | None:
    """What the inventory says of it."""
    return {held.allocation_id: held.first_boot for held in (await node.driver.inventory()).held}[order.allocation_id]


async def ended(node: Node, order: ProvisionOrder, status: FirstBootStatus) -> None:
    """Wait for it in the inventory."""

    async def has() -> bool:
        found = await first_boot(node, order)
        return found is not None and found.status is status

    await async_wait_for(has, f"the first boot is {status}")
