"""The fabric between GPUs (NVSwitch): which partition of it the GPUs of a slice form.

A seam: Berth activates no partitions yet. With NVIDIA's fabric manager in its mode for virtual machines, the partition of a
slice's GPUs is activated before the guest starts and deactivated after its GPUs are reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from node_agent.discovery.pci import NVIDIA, pci_devices
from node_agent.discovery.reading import Gaps, Tree

SWITCH_CLASS = "068000"


class Fabric(Protocol):
    """What manages the partitions of a host. Both calls can be repeated, and are bounded in time."""

    async def activate(self, addresses: Sequence[str]) -> None:
        """Connect these GPUs with each other, and with no other. Raises OSError."""

    async def deactivate(self, addresses: Sequence[str]) -> None:
        """Undo it; not an error if it is not active. Raises OSError."""


class NoFabric:
    """Of a host without switches, or whose partitions nothing manages: GPUs of a slice have no NVLink then."""

    async def activate(self, addresses: Sequence[str]) -> None:
        """There is nothing to connect."""

    async def deactivate(self, addresses: Sequence[str]) -> None:
        """There is nothing to undo."""


def switches(root: Path) -> list[str]:
    """The addresses of the host's switches."""
    found = pci_devices(Tree(root, Gaps())) or []
    return [one.address for one in found if one.pci_class == SWITCH_CLASS and one.pci_id.startswith(NVIDIA)]
