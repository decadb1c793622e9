"""Memory: patterns are written to a bounded share of what is free, and read back.

The process that does it makes itself the kernel's first victim when memory runs out, and takes no more than a share of
what is available, so that no guest ends for it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from node_agent.wire.burn_in import BurnInPart

BYTES_MIN = 16 * 2**20
"""Less proves nothing."""
SHARE = 2
SHARE_WHEN_SHARED = 16
"""Of the memory that is available, one part in so many is tested."""
SMALLER_WHEN_SHARED = 8
"""Of the bound of the settings, one part in so many, however much is free."""
_CHUNK = 16 * 2**20
_BLOCK = 2**20
_BLOCKS_OF_CHUNK = _CHUNK // _BLOCK
_WORD = 8
_FIRST_VICTIM = "1000"
_UNLIMITED = 2**62

Pattern = Callable[[int], bytes]
"""The content of a block, by its number."""


class Buffer(Protocol):
    """Memory that is written and read in slices."""

    def __setitem__(self, part: slice, content: bytes, /) -> None: ...

    def __getitem__(self, part: slice, /) -> bytes: ...


def anonymous(size: int) -> Buffer:
    """Memory of this process alone."""
    return mmap.mmap(-1, size)


def available(root: Path = Path("/")) -> int:
    """Bytes that may be taken without swapping: of the machine, or of this process's control group if that is less.

    Raises OSError, ValueError.
    """
    lines = (root / "proc/meminfo").read_text().splitlines()
    named = dict(line.split(":", 1) for line in lines if ":" in line)
    free = int(named["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in named else 0
    return min(free, *_headrooms(root))


def _headrooms(root: Path) -> Iterator[int]:
    """What the control groups (version 2) of this process leave it."""
    yield _UNLIMITED
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if path is None:
        return
    top = root / "sys/fs/cgroup"
    for group in (top / path, *(top / path).parents):
        if not group.is_relative_to(top):
            return
        try:
            limit, used = (group / "memory.max").read_text().strip(), int((group / "memory.current").read_text())
        except (OSError, ValueError):
            continue
        if limit.isdecimal():
            yield max(0, int(limit) - used)


def become_first_victim(root: Path = Path("/")) -> None:
    """Let the kernel end this process before any other when memory runs out. Raises OSError."""
    (root / "proc/self/oom_score_adj").write_text(_FIRST_VICTIM)


def bound_of(free: int, bytes_max: int, *, shared: bool) -> int:
    """How many bytes are tested of those that are available."""
    if shared:
        wanted = min(max(bytes_max // SMALLER_WHEN_SHARED, BYTES_MIN), bytes_max, free // SHARE_WHEN_SHARED)
    else:
        wanted = min(bytes_max, free // SHARE)
    return wanted - wanted % _CHUNK


def run_memory_test(
    bytes_max: int, *, shared: bool, allocate: Callable[[int], Buffer] = anonymous, free: Callable[[], int] = available
) -> BurnInPart:
    """Write and read back every pattern. `allocate` and `free` are replaced in tests."""
    at_first = free()
    bound = bound_of(at_first, bytes_max, shared=shared)
    if bound < BYTES_MIN:
        return BurnInPart(
            name="memory", verdict="unknown", evidence=f"{at_first} bytes are available, which is too little"
        )
    chunks: list[Buffer] = []
    # Guests may grow meanwhile: half of what was available at first stays untouched.
    while len(chunks) * _CHUNK < bound and free() > at_first // 2 - _CHUNK:
        chunks.append(_touched(allocate(_CHUNK)))
    tested = len(chunks) * _CHUNK
    if tested < BYTES_MIN:
        return BurnInPart(
            name="memory", verdict="unknown", evidence="other processes took the memory that was available"
        )
    for name, pattern in PATTERNS.items():
        _write(chunks, pattern)
        wrong = _first_difference(chunks, pattern)
        if wrong is not None:
            at, written, read = wrong
            evidence = f"pattern {name}: byte {at} of {tested} was written {written:#04x}, read {read:#04x}"
            return BurnInPart(name="memory", verdict="fault", evidence=evidence, bytes_tested=tested)
    return BurnInPart(name="memory", verdict="healthy", bytes_tested=tested)


def _constant(content: bytes) -> Pattern:
    return lambda _: content


# Each bit as 0 and as 1, neighbours that differ, and two that differ from address to address.
PATTERNS: dict[str, Pattern] = {
    **{f"{value:#04x}": _constant(bytes([value]) * _BLOCK) for value in (0x00, 0xFF, 0x55, 0xAA)},
    "address of the word": _constant(struct.pack(f"<{_BLOCK // _WORD}Q", *range(_BLOCK // _WORD))),
    "address of the block": lambda number: struct.pack("<Q", number) * (_BLOCK // _WORD),
}


def _touched(chunk: Buffer) -> Buffer:
    """The chunk, with every page of it in memory."""
    _write([chunk], PATTERNS["0x00"])
    return chunk


def _blocks(chunks: Sequence[Buffer]) -> Iterator[tuple[int, Buffer, slice]]:
    """Number, chunk and place of each block."""
    for number in range(len(chunks) * _BLOCKS_OF_CHUNK):
        index, place = divmod(number, _BLOCKS_OF_CHUNK)
        yield number, chunks[index], slice(place * _BLOCK, (place + 1) * _BLOCK)


def _write(chunks: Sequence[Buffer], pattern: Pattern) -> None:
    for number, chunk, place in _blocks(chunks):
        chunk[place] = pattern(number)


def _first_difference(chunks: Sequence[Buffer], pattern: Pattern) -> tuple[int, int, int] | None:
    """Offset, byte written and byte read of the first difference."""
    for number, chunk, place in _blocks(chunks):
        written, read = pattern(number), chunk[place]
        if written != read:
            at = next(offset for offset in range(_BLOCK) if written[offset] != read[offset])
            return number * _BLOCK + at, written[at], read[at]
    return None
