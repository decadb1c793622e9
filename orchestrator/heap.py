"""Keeps the garbage collector out of the way of requests.

A full collection stops a process for as long as it takes to walk everything that lives: with the code, the schemas and the
compiled statements of an API that was 199 ms at a time, and it is 33 ms without them (docs/performance.md).
"""

from __future__ import annotations

import gc

OBJECTS_UNTIL_COLLECTION = 5_000
YOUNG_PER_MIDDLE = 20
MIDDLE_PER_FULL = 10


def settle_heap() -> None:
    """Never look again at what lives now, and at what is new less often. To be called when a process is about to serve."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_UNTIL_COLLECTION, YOUNG_PER_MIDDLE, MIDDLE_PER_FULL)
