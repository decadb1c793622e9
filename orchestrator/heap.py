"""Freezes startup objects and bounds full garbage collections, so that requests do not wait for them.

A full collection stops a process while it walks every live object: 199 ms with the code, schemas and compiled statements of
an API, 33 ms without them, and as long again for each 400 nodes that wait for tasks (docs/explanation/scale.md). Python runs one
when many objects have survived younger collections, which those of each long poll do, though nothing of them is garbage. A
process with `FullCollections` runs one when its memory has grown instead, and every ten minutes.

Returns freed memory to the system: glibc raises its thresholds when large blocks are freed, and then keeps the memory of
the buffers of TLS connections: 500 MB beside 2,000 hostile ones, and 250 MB with fixed thresholds.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from pathlib import Path
from typing import Final

OBJECTS_UNTIL_COLLECTION = 5_000
YOUNG_PER_MIDDLE = 20
MIDDLE_PER_FULL = 10
NEVER: Final = 2**31 - 1
"""Middle collections before a full one, where `FullCollections` decides."""
FULL_SECONDS_MAX: Final = 600.0
"""How long garbage that only a full collection finds may remain while memory does not grow."""
GROWN_SHARE: Final = 0.25
GROWN_BYTES: Final = 64 * 2**20
"""A full collection is due when memory has grown by both since the last one."""
CHECK_SECONDS: Final = 1.0
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""Parameters of mallopt(3)."""
MAPPED_BYTES: Final = 64 * 1024
"""Blocks from this size on are mappings, which end when they are freed."""
TRIMMED_BYTES: Final = 128 * 1024
"""So much free memory at the heap's end is returned."""
_MEMORY: Final = Path("/proc/self/statm")


def settle_heap() -> None:
    """Freeze startup objects (`gc.freeze`), raise the collection thresholds, and return freed memory to the system.

    Call it when a process is about to serve.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_UNTIL_COLLECTION, YOUNG_PER_MIDDLE, MIDDLE_PER_FULL)
    return_freed_memory()


def resident_bytes() -> int | None:
    """Memory of this process that is resident; None where the system does not say."""
    try:
        return int(_MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


class FullCollections:
    """Runs full collections of this process, instead of Python, when one is due."""

    def __init__(self, now: float, used: int) -> None:
        self._last_at = now
        self._used = used

    def is_due(self, now: float, used: int) -> bool:
        """Whether memory has grown enough since the last full collection, or enough time has passed. `now` in seconds."""
        grown = used - self._used
        return grown >= max(GROWN_BYTES, GROWN_SHARE * self._used) or now - self._last_at >= FULL_SECONDS_MAX

    def note(self, now: float, used: int) -> None:
        """One has run, and left so many bytes resident."""
        self._last_at, self._used = now, used


async def collect_when_due() -> None:
    """Run full collections for as long as the process serves; where memory cannot be read, leave them to Python.

    Call `settle_heap` before.
    """
    used = resident_bytes()
    if used is None:
        return
    collections = FullCollections(time.monotonic(), used)
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        used = resident_bytes() or used
        if collections.is_due(time.monotonic(), used):
            gc.collect()
            used = resident_bytes() or used
            collections.note(time.monotonic(), used)


def return_freed_memory() -> bool:
    """Fix the thresholds of glibc's allocator; False where the C library has none."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(M_TRIM_THRESHOLD, TRIMMED_BYTES))
