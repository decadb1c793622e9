"""Which emulated machines there are, and what they are sold as."""

from __future__ import annotations

from dataclasses import dataclass

from berth.local.machines.networks import HOST, PREFIX_LENGTH

SITE = "rack-1"
AGENT = "management-host-1"
REGION = "eu-1"
GPU_MODEL = "rage-128"
"""What QEMU emulates that a discovery takes for a GPU."""
GPU_DEVICE = "ati-vga"
SKU = "emulated.metal"
IMAGE = "emulated-guest"
DISK_BYTES = 512 << 20
DISK_SERIAL = "DISK1"
_ADDRESS_FIRST = 31


@dataclass(frozen=True)
class PlannedMachine:
    """A node to register: its name, and its port on the provisioning network."""

    name: str
    mac: str
    address: str

    @property
    def network(self) -> dict[str, str]:
        """As a run of a deploy system takes it."""
        return {"mac": self.mac, "address": f"{self.address}/{PREFIX_LENGTH}", "gateway": HOST}


def plan_machines(count: int) -> list[PlannedMachine]:
    """The first `count` machines, each with a name, a MAC and an address that no other has."""
    return [
        PlannedMachine(f"machine-{number + 1}", f"52:54:00:be:27:{number + 1:02x}", f"10.0.2.{_ADDRESS_FIRST + number}")
        for number in range(count)
    ]
