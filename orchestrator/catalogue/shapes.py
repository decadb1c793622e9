"""The shapes of SKUs. Pure."""

from __future__ import annotations

from enum import StrEnum


class Shape(StrEnum):
    """The shape of a SKU: a whole node, or some of its GPUs."""

    BAREMETAL = "baremetal"
    GPU_SLICE = "gpu_slice"
