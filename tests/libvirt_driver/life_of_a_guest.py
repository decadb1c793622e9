"""`python -m tests.libvirt_driver.life_of_a_guest DIR USER GROUP CAPABILITY...`: one guest from provision to proven wipe.

The process is started as root and keeps these rights alone. Prints one line of JSON: its capabilities, and what was proven.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, cast

from node_agent.drivers.choice import choose_driver
from node_agent.drivers.contract import Driver, GuestState, InteractiveConsole, Verb
from node_agent.drivers.performing import Unheard, perform
from node_agent.settings import Settings
from node_agent.wire.devices import EVIDENCE
from tests.drivers.in_process import Node, Scenario
from tests.drivers.libvirt_harness import LibvirtHarness
from tests.libvirt_driver.service_rights import give_up
from tests.support.waiting import async_wait_for

READINESS = "READINESS_SECONDS"


class OwnDirectory(LibvirtHarness):
    """Guests below a directory of this process's user."""

    def __init__(self, directory: Path) -> None:
        self._guests = directory

    def directory(self, state_dir: Path) -> Path:
        return self._guests

    def driver(self, settings: Settings) -> Driver:
        changes = {
            "agent_driver": "libvirt", "guest_dir": self._guests, "guest_memory_bytes": 96 << 20, "guest_processors": 1,
            "guest_disk_bytes": 1 << 30, "agent_readiness_seconds": float(os.environ.get(READINESS, "200")),
        }  # fmt: skip
        return choose_driver(settings.model_copy(update=changes))

    def clean(self, state_dir: Path) -> None:
        """The test's own user removes what is left."""


def capabilities() -> dict[str, int]:
    """The sets of this process, by name."""
    status = Path("/proc/self/status").read_text()
    return {name: int(value, 16) for name, value in re.findall(r"^(Cap\w+):\s+([0-9a-f]+)$", status, re.MULTILINE)}


def scenario_into(said: dict[str, Any]) -> Scenario:
    """Provision, log in, reboot, lose QEMU, start, release."""

    async def scenario(node: Node) -> None:
        order = node.order()
        up = await perform(node.driver.provision(order), Unheard())
        said["devices"] = len(up.evidence[EVIDENCE]["devices"])
        said["user"] = (await node.tenant.run(up.connection, "id -un")).strip()  # type: ignore[attr-defined]
        await perform(node.verb(order, Verb.REBOOT), Unheard())
        console = await node.driver.console(order.allocation_id, 0, 1 << 20)
        said["console"] = b"the guest has started" in console.data
        async with cast(InteractiveConsole, node.driver).attach(order.allocation_id) as descriptor:
            said["attached"] = os.write(descriptor, b"\r") == 1
        for pid in node.probe.processes()[order.allocation_id]:
            os.kill(pid, signal.SIGKILL)

        async def down() -> bool:
            return await node.state(order) is GuestState.DOWN

        await async_wait_for(down, "the guest is down")
        said["restarted"] = await node.driver.restart(order.allocation_id)
        released = await perform(node.release(order), Unheard())
        said["proven"] = [proof["proven"] for proof in released.evidence["devices"]]
        said["left"] = [str(held.allocation_id) for held in (await node.driver.inventory()).held]

    return scenario


async def live(directory: Path) -> dict[str, Any]:
    """What the life has shown."""
    said: dict[str, Any] = {"capabilities": capabilities(), "uid": os.getuid()}
    node = Node(OwnDirectory(directory / "guests"), directory)
    await node.driver.start()
    try:
        await scenario_into(said)(node)
    finally:
        await node.driver.stop(0.0)
        shutil.rmtree(directory / "guests", ignore_errors=True)
    return said


def main(directory: str, user_id: str, group_id: str, *kept: str) -> None:
    """Give the rights up, then live."""
    # Modules that are imported late: the user may not reach their files.
    import concurrent.futures.thread  # noqa: F401
    import encodings.idna
    import encodings.utf_16_be  # noqa: F401

    import node_agent.drivers.libvirt.driver  # noqa: F401

    os.umask(0o077)
    give_up(int(user_id), [int(group_id)], kept)
    sys.stdout.write(json.dumps(asyncio.run(live(Path(directory)))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
