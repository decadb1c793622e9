"""The driver while libvirtd is down, or while the programs of networks are missing: what it restores and renews. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from node_agent.drivers.choice import choose_driver
from node_agent.drivers.libvirt.network import programs
from node_agent.drivers.libvirt.network.links import links
from node_agent.problems import CannotStart
from node_agent.settings import Settings
from tests.libvirt_driver.definitions import ALLOCATION, guest
from tests.libvirt_driver.network.stage import A1, UPLINK, sh


def driver_in(directory: Path) -> Any:
    """A driver whose libvirtd does not listen."""
    return choose_driver(
        Settings.model_validate(
            {
                "api_url": "https://unused",
                "root_keys_file": directory / "unused",
                "agent_state_dir": directory / "agent",
                "agent_driver": "libvirt",
                "guest_dir": directory,
                "agent_advertised_host": UPLINK,
                "libvirt_network": "bridge",
                "libvirt_network_names": "none",
                "libvirt_uri": f"qemu+unix:///system?socket={directory}/none",
            }
        )
    )


def has_rules() -> bool:
    """Whether the guest is in the rules."""
    return str(A1.order.address) in sh("nft list ruleset")


async def main() -> None:
    """Print what is there after a start and a repair without libvirtd, and what becomes of leases without programs."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        driver = driver_in(Path(name))
        directory, record = guest(Path(name) / "allocations", state="running", network=A1.order)
        directory.path.mkdir()
        directory.save(record)
        try:
            await driver.start()
        except CannotStart as refused:
            found["start"] = [str(refused), len(links()), has_rules()]
        sh("nft flush ruleset")
        try:
            await driver.tend_leases()
        except OSError:
            found["tended"] = has_rules()
        found["stages"] = [_stage(driver)]
        directory.save(record.model_copy(update={"state": "provisioning"}))
        found["stages"].append(_stage(driver))
        directory.mark_releasing()
        found["stages"].append(_stage(driver))

        async def no_owners() -> list[Any]:
            return []

        driver._hypervisor.owners = no_owners
        driver._leases.take([3], ALLOCATION, 7)
        before = driver._leases.held()[3].expires_at_boot_seconds
        programs._PATH = "/nowhere"
        try:
            found["cleared"] = await driver.tend_leases()
        except OSError as error:
            found["cleared"] = str(error)
        found["renewed"] = driver._leases.held()[3].expires_at_boot_seconds > before
    print(json.dumps(found))  # noqa: T201 - the result


def _stage(driver: Any) -> str:
    (one,) = driver._node.guests_in_networks()
    return str(one.stage)


if __name__ == "__main__":
    asyncio.run(main())
