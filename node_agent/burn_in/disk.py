"""Disk: a bounded file is written, synced, and read back past the page cache.

The file has no name, so that the kernel removes it with the process, however that ends. A file system without such files
gets one that is unlinked before anything is written to it; `remove_remains` removes what a kill in between left.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from node_agent.discovery.reading import Gaps
from node_agent.wire.burn_in import BurnInPart

BYTES_MIN = 2**20
SHARE = 4
SHARE_WHEN_SHARED = 32
"""Of the space that is free, one part in so many is written."""
SMALLER_WHEN_SHARED = 8
"""Of the bound of the settings, one part in so many, however much is free."""
_BLOCK = 2**20
_NAME = "burn-in.tmp"
_UNNAMED_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Scratch:
    """The file under test. Tests override `sync` to seed a fault between write and read."""

    def __init__(self, directory: Path) -> None:
        self.descriptor = _open_unnamed(directory)

    def write(self, content: bytes) -> None:
        """Append the content. Raises OSError."""
        view = memoryview(content)
        while view:
            view = view[os.write(self.descriptor, view) :]

    def sync(self) -> None:
        """Bring what was written to the disk, and drop it from the page cache. Raises OSError."""
        os.fsync(self.descriptor)
        os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def reopen(self, gaps: Gaps) -> int:
        """A descriptor that reads past the page cache, where the file system can do that."""
        path = f"/proc/self/fd/{self.descriptor}"
        try:
            return os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        except OSError as error:
            gaps.add("disk", f"O_DIRECT does not work there: {error.strerror}; read after a drop of the page cache")
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Give the file up; the kernel removes it."""
        os.close(self.descriptor)


def remove_remains(directory: Path) -> None:
    """Remove what a kill between creation and unlinking left. Raises OSError."""
    (directory / _NAME).unlink(missing_ok=True)


def _open_unnamed(directory: Path) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _UNNAMED_UNSUPPORTED:
            raise
    path = directory / _NAME
    remove_remains(directory)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    path.unlink()
    return descriptor


def bound_of(free: int, bytes_max: int, *, shared: bool) -> int:
    """How many bytes are written of those that are free."""
    if shared:
        wanted = min(max(bytes_max // SMALLER_WHEN_SHARED, BYTES_MIN), bytes_max, free // SHARE_WHEN_SHARED)
    else:
        wanted = min(bytes_max, free // SHARE)
    return wanted - wanted % _BLOCK


def run_disk_test(
    directory: Path, bytes_max: int, gaps: Gaps, *, shared: bool, scratch: type[Scratch] = Scratch
) -> BurnInPart:
    """Write, sync, read back and compare. `scratch` is replaced in tests."""
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    bound = bound_of(free, bytes_max, shared=shared)
    if bound < BYTES_MIN:
        return BurnInPart(name="disk", verdict="unknown", evidence=f"{free} bytes are free, which is too little")
    try:
        file = scratch(directory)
    except OSError as error:
        return BurnInPart(name="disk", verdict="unknown", evidence=f"no file can be created: {error.strerror}")
    try:
        return _tested(file, bound // _BLOCK, gaps)
    except OSError as error:
        verdict = "unknown" if error.errno in _NO_SPACE else "fault"
        return BurnInPart(name="disk", verdict=verdict, evidence=f"{error.strerror} (errno {error.errno})")
    finally:
        file.close()


def _tested(file: Scratch, blocks: int, gaps: Gaps) -> BurnInPart:
    # Random, so that no layer below compresses or deduplicates it; each block differs by its number.
    base = os.urandom(_BLOCK)
    digests: list[bytes] = []
    for number in range(blocks):
        block = number.to_bytes(8) + base[8:]
        digests.append(hashlib.sha256(block).digest())
        file.write(block)
    file.sync()
    wrong = _first_difference(file, digests, gaps)
    tested = blocks * _BLOCK
    if wrong is not None:
        return BurnInPart(name="disk", verdict="fault", evidence=wrong, bytes_tested=tested)
    return BurnInPart(name="disk", verdict="healthy", bytes_tested=tested)


def _first_difference(file: Scratch, digests: Sequence[bytes], gaps: Gaps) -> str | None:
    descriptor = file.reopen(gaps)
    try:
        with mmap.mmap(-1, _BLOCK) as aligned:  # O_DIRECT reads into aligned memory alone
            for number, digest in enumerate(digests):
                count = os.preadv(descriptor, [aligned], number * _BLOCK)
                if count != _BLOCK:
                    return f"block {number} of {len(digests)}: {count} bytes were read of {_BLOCK}"
                if hashlib.sha256(aligned).digest() != digest:
                    return f"block {number} of {len(digests)} is not what was written"
    finally:
        os.close(descriptor)
    return None
