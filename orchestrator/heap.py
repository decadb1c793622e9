"""Freezes startup objects and raises the garbage collector's thresholds, so that requests do not wait for collections.

A full collection stops a process while it walks every live object: 199 ms with the code, schemas and compiled statements of
an API, 33 ms without them (docs/reference/performance.md).

Returns freed memory to the system: glibc raises its thresholds when large blocks are freed, and then keeps the memory of
the buffers of TLS connections: 500 MB beside 2,000 hostile ones, and 250 MB with fixed thresholds.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

OBJECTS_UNTIL_COLLECTION = 5_000
YOUNG_PER_MIDDLE = 20
MIDDLE_PER_FULL = 10
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""Parameters of mallopt(3)."""
MAPPED_BYTES: Final = 64 * 1024
"""Blocks from this size on are mappings, which end when they are freed."""
TRIMMED_BYTES: Final = 128 * 1024
"""So much free memory at the heap's end is returned."""


def settle_heap() -> None:
    """Freeze startup objects (`gc.freeze`), raise the collection thresholds, and return freed memory to the system.

    Call it when a process is about to serve.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_UNTIL_COLLECTION, YOUNG_PER_MIDDLE, MIDDLE_PER_FULL)
    return_freed_memory()


def return_freed_memory() -> bool:
    """Fix the thresholds of glibc's allocator; False where the C library has none."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(M_TRIM_THRESHOLD, TRIMMED_BYTES))
