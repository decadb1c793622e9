"""A name server that an agent starts with the rights of its service and no others. Arguments: a directory, the capabilities."""

from __future__ import annotations

import json
import os
import pwd
import sys
from pathlib import Path
from typing import Any

from node_agent.drivers.libvirt.network.dhcp import NameServers, served
from node_agent.drivers.libvirt.network.policy import Naming
from tests.libvirt_driver.network.naming.answers import WEB, identity
from tests.libvirt_driver.network.stage import sh
from tests.libvirt_driver.service_rights import give_up

ACCOUNT = pwd.getpwnam("daemon")


def main(directory: Path, capabilities: list[str]) -> None:
    """Print which user the process is of, whether it is ended, and what it may read of the agent's."""
    sh(
        f"ip link add {WEB.bridge} type bridge; ip addr add {WEB.order.gateway}/24 dev {WEB.bridge}; ip link set {WEB.bridge} up"
    )
    os.chown(directory, ACCOUNT.pw_uid, ACCOUNT.pw_gid)
    os.umask(0o077)
    give_up(ACCOUNT.pw_uid, [ACCOUNT.pw_gid], capabilities)
    servers = NameServers(directory / "networks", Naming("x.test"), 1500)
    found: dict[str, Any] = {
        "started": servers.serve(served([WEB], [])[1]),
        "again": servers.serve(served([WEB], [])[1]),
    }
    (processes,) = servers._processes().values()
    found["identity"] = [identity(pid) for pid in processes]
    found["ended"] = [servers.end(1), not servers._processes()]
    print(json.dumps(found))  # noqa: T201 - the result


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
