"""The fleet as placement uses it: pools and the node layouts in them, never single nodes.

A node's class is the pair (free slots in half 0, free slots in half 1). There are a few dozen classes whatever the fleet's
size, so ranking classes instead of nodes keeps placement from slowing down as the fleet grows (DESIGN §5).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

CLASS_BASE = 64


@dataclass(frozen=True, slots=True, order=True)
class FitClass:
    """Free slots in each NUMA half of a node."""

    low: int
    high: int

    @property
    def free(self) -> int:
        """Free slots in all."""
        return self.low + self.high

    @property
    def number(self) -> int:
        """As stored in `nodes.fit_class`."""
        return self.low * CLASS_BASE + self.high


@dataclass(frozen=True, slots=True, order=True)
class Layout:
    """How many slots a node has, and how many of them lie in the first NUMA half."""

    slot_count: int
    half_slots: int

    @property
    def whole(self) -> FitClass:
        """The class of a node with nothing on it."""
        return FitClass(self.half_slots, self.slot_count - self.half_slots)


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one region, GPU model and shape, by their layouts."""

    pool_id: int
    region: str
    gpu_model: str
    shape: str
    layouts: tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class Sku:
    """A SKU, as placement needs it."""

    name: str
    shape: str
    gpu_model: str
    allowed_counts: frozenset[int]
    default_image: str | None
    price_version: int
    active: bool
    row_version: int


@dataclass(frozen=True, slots=True)
class Image:
    """An image, and where it is offered; None means every GPU model, or every region. With `cloud_init` it runs user data."""

    name: str
    shapes: frozenset[str]
    gpu_models: frozenset[str] | None
    regions: frozenset[str] | None
    active: bool
    row_version: int
    cloud_init: bool = True

    def offered(self, shape: str, gpu_model: str, region: str) -> bool:
        """Whether it is offered there."""
        return (
            self.active
            and shape in self.shapes
            and (self.gpu_models is None or gpu_model in self.gpu_models)
            and (self.regions is None or region in self.regions)
        )


@dataclass(frozen=True, slots=True)
class Catalogue:
    """SKUs, images, pools and regions at one moment."""

    skus: dict[str, Sku]
    images: dict[str, Image]
    pools: dict[tuple[str, str, str], Pool]
    regions: frozenset[str]


def classes_of(layouts: tuple[Layout, ...]) -> tuple[FitClass, ...]:
    """Every class that a node of these layouts can be in, in numeric order."""
    found = {
        FitClass(low, high)
        for layout in layouts
        for low, high in product(range(layout.whole.low + 1), range(layout.whole.high + 1))
    }
    return tuple(sorted(found))
