"""The nodes of a local stack: pretended ones, the same six for the demo and more of the same beyond, or nodes with guests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Shape = Literal["baremetal", "gpu_slice"]

REGIONS = {"eu-1": "Europe 1", "us-1": "America 1"}
GPU_MODEL = "H100"
IMAGE = "ubuntu-24.04"
SLICE_SKU = "h100.slice"
METAL_SKU = "h100.metal"
SLOTS = 8
HALF_SLOTS = 4
SLICE_COUNTS = (1, 2, 4, 8, 12, 16, 24, 32, 64, 128)
METAL_COUNTS = (SLOTS,)
DEMO_AGENTS = 6
GUEST_SLOTS = 4
PATTERN: tuple[tuple[str, Shape], ...] = (
    ("eu-1", "gpu_slice"), ("us-1", "gpu_slice"), ("eu-1", "baremetal"),
    ("eu-1", "gpu_slice"), ("us-1", "gpu_slice"), ("us-1", "baremetal"),
)  # fmt: skip


@dataclass(frozen=True)
class PlannedNode:
    """A node that the stack registers and runs an agent for."""

    name: str
    region: str
    shape: Shape
    slots: int = SLOTS
    half_slots: int = HALF_SLOTS
    user_id_first: int = 64_500
    """Of its guests, where it has any: two nodes on one machine share no user."""

    @property
    def hardware_id(self) -> str:
        """What the agent says its hardware is; stable over restarts."""
        return f"sandbox-{self.name}"


def plan_fleet(agents: int) -> list[PlannedNode]:
    """The first `agents` nodes; six are four slice nodes and two bare-metal nodes over two regions."""
    counted: dict[tuple[str, str], int] = {}
    nodes = []
    for index in range(agents):
        region, shape = PATTERN[index % len(PATTERN)]
        counted[region, shape] = counted.get((region, shape), 0) + 1
        kind = "metal" if shape == "baremetal" else "slice"
        nodes.append(PlannedNode(f"{region}-{kind}-{counted[region, shape]}", region, shape))
    return nodes


@dataclass(frozen=True)
class Guests:
    """Real guests of QEMU in place of pretended ones. `image` is booted; disks are below `directory`, one folder a node."""

    image: Path
    directory: Path


def plan_guest_fleet() -> list[PlannedNode]:
    """A node of four slots in each region: eight guests are what two processors emulate within minutes."""
    return [
        PlannedNode(
            f"{region}-slice-1", region, "gpu_slice", GUEST_SLOTS, GUEST_SLOTS // 2, 64_500 + number * GUEST_SLOTS
        )
        for number, region in enumerate(REGIONS)
    ]
