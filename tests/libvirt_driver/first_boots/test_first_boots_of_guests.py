"""The first boot of guests of QEMU: reported beside readiness, over reboots, agents and rebuilds."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.drivers.contract import ProvisionOrder, Verb
from node_agent.drivers.performing import Unheard, perform
from node_agent.settings import Settings
from node_agent.wire.first_boot import FirstBoot, FirstBootStatus
from tests.drivers.in_process import Node, play
from tests.drivers.libvirt_harness import LibvirtHarness
from tests.libvirt_driver.first_boots.inventories import ended, first_boot

pytestmark = pytest.mark.hardware
NEVER = "#cloud-config\n# first-boot: never\n"


def nonce_of(harness: LibvirtHarness, node: Node, order: ProvisionOrder) -> str:
    record = node.driver._node.directory(order.allocation_id).load()  # type: ignore[attr-defined]
    nonce: str = record.nonce
    return nonce


def test_the_end_of_the_first_boot_is_reported_and_its_failure_fails_no_guest(
    harness: LibvirtHarness, tmp_path: Path
) -> None:
    async def scenario(node: Node) -> None:
        order = node.order(user_data="#cloud-config\n# first-boot: 1 status: error detail: runcmd\n")
        await perform(node.driver.provision(order), Unheard())
        await ended(node, order, FirstBootStatus.ERROR)
        found = await first_boot(node, order)
        assert found is not None
        assert found.detail == "status: error detail: runcmd"

    play(harness, tmp_path, scenario)


def test_a_first_boot_that_does_not_end_is_pending_over_reboot_and_agents_and_begins_anew_with_a_rebuild(
    harness: LibvirtHarness, tmp_path: Path
) -> None:
    async def scenario(node: Node) -> None:
        order = node.order(user_data=NEVER)
        up = await perform(node.driver.provision(order), Unheard())
        assert await first_boot(node, order) == FirstBoot(status=FirstBootStatus.PENDING), "it is active all the same"
        await perform(node.verb(order, Verb.REBOOT), Unheard())
        assert await first_boot(node, order) == FirstBoot(status=FirstBootStatus.PENDING)

        await node.driver._node.first_boots.close()  # type: ignore[attr-defined] # as the agent ends
        nonce = nonce_of(harness, node, order)
        # The tenant's word counts for its own guest: nothing else could say it.
        says = (
            f"(echo BERTH-USER-DATA {nonce} 0 status: done >$(ls /dev/vport*)) >/dev/null 2>&1 </dev/null & echo sent"
        )
        await node.tenant.run(up.connection, says)  # type: ignore[attr-defined]
        settings = Settings(
            api_url="https://unused", root_keys_file=tmp_path / "unused", agent_state_dir=node.state_dir
        )
        node.driver = harness.driver(settings)
        await node.driver.start()
        assert await node.driver.resume() == [order.allocation_id]
        await ended(node, order, FirstBootStatus.DONE)

        rebuilt = await perform(node.verb(order, Verb.REBUILD, user_data=NEVER), Unheard())
        assert rebuilt.connection is not None
        assert nonce_of(harness, node, order) != nonce
        assert await first_boot(node, order) == FirstBoot(status=FirstBootStatus.PENDING), "of a new disk"

    play(harness, tmp_path, scenario)


def test_a_guest_without_cloud_init_has_none(harness: LibvirtHarness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        order = node.order()
        image = order.parameters.image.model_copy(update={"cloud_init": False, "readiness": "ssh"})
        order = ProvisionOrder(
            order.allocation_id, order.fence, order.parameters.model_copy(update={"image": image})
        )  # fmt: skip
        await perform(node.driver.provision(order), Unheard())
        assert await first_boot(node, order) == FirstBoot(status=FirstBootStatus.NOT_APPLICABLE)

    play(harness, tmp_path, scenario)
