"""Freezes startup objects and raises the garbage collector's thresholds, so that requests do not wait for collections.

A full collection stops a process while it walks every live object: 199 ms with the code, schemas and compiled statements of
an API, 33 ms without them (docs/reference/performance.md).
"""

from __future__ import annotations

import gc

OBJECTS_UNTIL_COLLECTION = 5_000
YOUNG_PER_MIDDLE = 20
MIDDLE_PER_FULL = 10


def settle_heap() -> None:
    """Freeze startup objects (`gc.freeze`) and raise the collection thresholds. Call it when a process is about to serve."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_UNTIL_COLLECTION, YOUNG_PER_MIDDLE, MIDDLE_PER_FULL)
