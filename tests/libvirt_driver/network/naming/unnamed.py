"""A node whose port of DNS another program has: which guests start, and what they are answered later. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from node_agent.drivers.libvirt.network.links import links
from node_agent.drivers.libvirt.network.policy import Naming
from node_agent.drivers.libvirt.network.programs import NetworkError
from tests.libvirt_driver.network.naming.answers import DOMAIN, GATEWAY, WEB, Node
from tests.libvirt_driver.network.naming.asking import resolved
from tests.libvirt_driver.network.stage import node_with, policy, sh


async def started(node: Node, was_there: bool) -> bool:
    """Whether the guest is in its network."""
    try:
        await node.networks.bring_in(WEB, was_there=was_there)
    except NetworkError:
        return False
    return f"master {WEB.bridge} " in sh(f"ip -o link show {WEB.tap}") and WEB.bridge in links()


async def starts(node: Node) -> dict[str, Any]:
    """With the port taken, and with the port free again."""
    found: dict[str, Any] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("0.0.0.0", 53))
        node.guests.append(replace(WEB, stage="coming"))
        found["new"] = await started(node, False)
        node.guests[:] = [WEB]
        found["again"] = await started(node, True)
        found["served"] = len(node.pids())
    found["tended"] = [await node.networks.tend(), resolved("a1", "web", GATEWAY)]
    return found


async def main() -> None:
    """Print everything."""
    with tempfile.TemporaryDirectory(prefix="berth-names-") as name:
        Path(name).chmod(0o711)
        # The card comes after the start, which would remove it.
        node = Node(Path(name) / "networks", replace(policy(), naming=Naming(DOMAIN)), [])
        stage = node_with([])
        await node.networks.start()
        stage.card("a1", WEB)
        try:
            found = await starts(node)
        finally:
            stage.end()
            for pid in node.pids():
                os.kill(pid, signal.SIGKILL)
    print(json.dumps(found))  # noqa: T201 - the result


if __name__ == "__main__":
    asyncio.run(main())
