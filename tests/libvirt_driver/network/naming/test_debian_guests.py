"""A guest with Debian's own cloud-init uses the resolver and the search list of its seed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.contract import Driver, ProvisionOrder
from node_agent.drivers.performing import Unheard, perform
from node_agent.protocol import ProvisionParameters
from node_agent.settings import Settings
from tests.drivers.bridged_harness import HOST, network_of, own_host
from tests.drivers.debian_harness import DebianHarness
from tests.drivers.in_process import Node, play
from tests.libvirt_driver.network.stage import why_no_name_servers

pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(3600)]


class DebianInNetworks(DebianHarness):
    """Guests of Debian in tenant networks."""

    def unavailable(self) -> str | None:
        return super().unavailable() or why_no_name_servers()

    def driver(self, settings: Settings) -> Driver:
        return super().driver(settings.model_copy(update={"libvirt_network": "bridge", "agent_advertised_host": HOST}))


@pytest.fixture
def harness() -> Iterator[DebianInNetworks]:
    made = DebianInNetworks()
    if (reason := made.unavailable()) is not None:
        pytest.skip(f"no guest of Debian can run: {reason}")
    with own_host():
        yield made


def test_cloud_init_sets_the_resolver_and_the_search_list(harness: DebianInNetworks, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        network = network_of(0) | {"names": ["berth-0", "web"]}
        parameters = ProvisionParameters.model_validate(node.tenant.provision([0], network=network))
        up = await perform(node.driver.provision(ProvisionOrder(uuid.uuid4(), 7, parameters)), Unheard())
        run: Any = node.tenant.run  # type: ignore[attr-defined]
        assert await run(up.connection, "getent ahostsv4 web | head -n 1 | cut -d ' ' -f 1") == "10.67.7.10\n"
        assert await run(up.connection, "getent hosts 10.67.7.10 | tr -s ' '") == "10.67.7.10 berth-0.berth.internal\n"

    play(harness, tmp_path, scenario)
