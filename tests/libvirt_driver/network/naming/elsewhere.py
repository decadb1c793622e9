"""Names and leases of guests whose networks span nodes, while guests of other nodes come and go. Prints JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from node_agent.drivers.libvirt.network.dhcp import NameServers
from tests.libvirt_driver.network.naming.asking import leased, resolved
from tests.libvirt_driver.network.spanning.nodes import GUESTS, Fabric, fabric_with, scratch
from tests.libvirt_driver.network.stage import sh

A1, A2 = GUESTS["a1"].order, GUESTS["a2"].order


def seen(*names: str) -> dict[str, list[str]]:
    """What the first node's guest of tenant A is answered."""
    return {name: resolved("a1", name, str(A1.gateway)).get("answers", ["nothing"]) for name in names}


def heard_elsewhere() -> list[int]:
    """How many frames of the first node's guest were asked of a DHCP server and dropped on their way to others."""
    return [
        int(line.split("packets ")[1].split()[0])
        for line in sh("nft list table bridge berth", "n1").splitlines()
        if line.strip().endswith('comment "dhcp to others"')
    ]


def everything(directory: str, fabric: Fabric) -> dict[str, Any]:
    """All of it."""
    n1 = fabric.nodes["n1"]
    found: dict[str, Any] = {"names": seen("a2", "berth-a3.x.test", "b2", GUESTS["a1"].names[0])}
    found["reverse"] = resolved("a1", "12.1.66.10.in-addr.arpa", str(A1.gateway), kind="PTR")
    before = sorted(
        pid for one in NameServers(Path(directory) / "n1" / "names", None, 0)._processes().values() for pid in one
    )
    n1.knows("a3", "b2")
    found["a2 left"] = seen("a2", "a3")
    n1.knows(*GUESTS)
    found["a2 returned"] = seen("a2", "a3")
    after = sorted(
        pid for one in NameServers(Path(directory) / "n1" / "names", None, 0)._processes().values() for pid in one
    )
    found["same processes"] = before == after
    n1.kill()
    n1.start()
    found["agent started"] = seen("a2")
    for name in ("a1", "a2"):
        sh("ip addr flush dev eth0", name)
    found["leases"] = [
        {key: leased(name, GUESTS[name]).get(key) for key in ("address", "mtu", "router")} for name in ("a1", "a2")
    ]
    found["dropped"] = heard_elsewhere()
    return found


def main() -> None:
    """Print everything."""
    with scratch() as directory:
        Path(directory).chmod(0o711)
        fabric = fabric_with(directory, domain="x.test")
        try:
            found = everything(directory, fabric)
        finally:
            fabric.end()
            for name in fabric.nodes:
                NameServers(Path(directory) / name / "names", None, 0).end_others([])
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
