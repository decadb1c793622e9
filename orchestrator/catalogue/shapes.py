"""The shapes of SKUs. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

SLOTS_MAX: Final = 62
"""Slots of a node: the mask of all slots, plus one, is still a bigint."""


class Shape(StrEnum):
    """The shape of a SKU: a whole node, or some of its GPUs."""

    BAREMETAL = "baremetal"
    GPU_SLICE = "gpu_slice"
