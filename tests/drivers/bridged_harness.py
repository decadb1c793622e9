"""The libvirt driver with tenant networks under the suite: the same guests on a bridge, their SSH port published by rules."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from node_agent.drivers.contract import Driver
from node_agent.settings import Settings
from tests.drivers.libvirt_harness import GUESTS, LibvirtHarness, MiniGuests
from tests.libvirt_driver.network.stage import why_no_name_servers

HOST = "192.0.2.1"
VNI = 7


def network_of(slot: int, vni: int = VNI) -> dict[str, Any]:
    """The order of a guest's network, one address and port for each slot."""
    return {
        "network_id": f"00000000-0000-7000-8000-{vni:012d}", "vni": vni, "subnet": f"10.67.{vni}.0/24",
        "gateway": f"10.67.{vni}.1", "address": f"10.67.{vni}.{slot + 10}", "mac": f"52:54:0a:43:{vni:02x}:{slot + 10:02x}",
        "published": [{"port": 31_000 + 100 * vni + slot, "guest_port": 22}],
    }  # fmt: skip


class GuestsInNetworks(MiniGuests):
    """Their orders name a network."""

    def provision(self, slots: list[int], **changes: Any) -> dict[str, Any]:
        return super().provision(slots, **{"network": network_of(slots[0]), **changes})


class BridgedHarness(LibvirtHarness):
    name = "libvirt with tenant networks"

    def unavailable(self) -> str | None:
        return super().unavailable() or why_no_name_servers()

    def driver(self, settings: Settings) -> Driver:
        bridged = {"libvirt_network": "bridge", "agent_advertised_host": HOST}
        return super().driver(settings.model_copy(update=bridged))

    def tenant(self, directory: Path) -> MiniGuests:
        return GuestsInNetworks(directory)


@contextmanager
def own_host() -> Iterator[None]:
    """The host's networks for one test: an agent shares them with no other, and tests share a libvirtd and its namespace."""
    GUESTS.mkdir(exist_ok=True)
    with (GUESTS / "networks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["ip", "address", "replace", f"{HOST}/32", "dev", "lo"], check=True)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        yield
