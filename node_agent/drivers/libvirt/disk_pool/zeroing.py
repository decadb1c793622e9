"""Overwrites what a thin volume holds, and proves it by reading all of it back past the page cache.

The kernel says up to where a volume maps blocks, and what it does not map reads as zeros. So whatever is not zero up to there is
overwritten, and nothing else: a write to an unmapped place would need space of a pool that may be full.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from berth.process.json_objects import JsonObject
from node_agent.drivers.libvirt.disk_pool.lvm import PoolError, run

CHUNK_BYTES = 1 << 20
PIECE_BYTES = 64 << 10
"""The chunks of a thin pool are multiples of it: a piece that is not zero is mapped as a whole."""
SECTOR_BYTES = 512
_BLKDISCARD, _BLKGETSIZE64, _BLKFLSBUF = 0x1277, 0x80081272, 0x1261
_ZEROS = bytes(CHUNK_BYTES)


@dataclass(frozen=True)
class Zeroed:
    """What was done to one volume. `mapped_bytes`: what the kernel said it mapped before; `read_back_bytes`: all of that
    range, every byte zero; `discarded`: the kernel said afterwards that nothing is mapped."""

    mapped_bytes: int
    overwritten_bytes: int
    read_back_bytes: int
    discarded: bool

    def as_evidence(self) -> JsonObject:
        """For `DeviceWipe.checked`."""
        return {
            "mapped_bytes": self.mapped_bytes, "overwritten_bytes": self.overwritten_bytes,
            "read_back_bytes": self.read_back_bytes, "past_the_page_cache": True, "discarded": self.discarded,
        }  # fmt: skip


def zero_volume(device: Path, stop: threading.Event, seconds_max: float) -> Zeroed:
    """Overwrite, read back, discard. Raises OSError if something is not zero afterwards, a program has the device open, or
    once `stop` is set. Needs no space in the pool."""
    with _opened(device) as descriptor:
        mapped, end = mapped_of(device, seconds_max)
        size = struct.unpack("Q", fcntl.ioctl(descriptor, _BLKGETSIZE64, bytes(8)))[0]
        end = min(end, size)
        written = _overwrite(descriptor, end, stop)
        os.fsync(descriptor)
        _require_zero(descriptor, end, device, stop)
        discarded = _discard(descriptor, size) and mapped_of(device, seconds_max)[0] == 0
    return Zeroed(mapped, written, end, discarded)


def mapped_of(device: Path, seconds_max: float) -> tuple[int, int]:
    """How many bytes the volume maps, and behind which byte it maps none. Raises PoolError."""
    # `START LENGTH thin MAPPED HIGHEST`, in sectors; without blocks `0 -` (admin-guide/device-mapper/thin-provisioning).
    words = run("dmsetup", "status", "--target", "thin", str(device), seconds_max=seconds_max).split()
    try:
        _, _, target, mapped, highest = words
        if target != "thin":
            raise ValueError(target)
        return int(mapped) * SECTOR_BYTES, 0 if highest == "-" else (int(highest) + 1) * SECTOR_BYTES
    except ValueError as error:
        raise PoolError(f"the kernel does not say what {device} maps: {' '.join(words)[:200] or 'nothing'}") from error


@contextmanager
def _opened(device: Path) -> Iterator[int]:
    # O_EXCL excludes mounts and device mapper. QEMU opens without it: that no program has the volume open is looked up before,
    # and lvremove refuses one that is open.
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_EXCL | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        raise PoolError(f"{device} cannot be opened for the wipe: {error.strerror}; end what has it open") from error
    try:
        if not stat.S_ISBLK(os.fstat(descriptor).st_mode):
            raise PoolError(f"{device} is no block device")
        with suppress(OSError):  # CAP_SYS_ADMIN alone; reads are past the page cache in any case
            fcntl.ioctl(descriptor, _BLKFLSBUF)
        yield descriptor
    finally:
        os.close(descriptor)


def _overwrite(descriptor: int, end: int, stop: threading.Event) -> int:
    written = 0
    with mmap.mmap(-1, CHUNK_BYTES) as buffer, mmap.mmap(-1, PIECE_BYTES) as zeros:
        for start, length in _read(descriptor, end, buffer, stop):
            if buffer[:length] == _ZEROS[:length]:
                continue
            for at in range(0, length, PIECE_BYTES):
                piece = min(PIECE_BYTES, length - at)
                if buffer[at : at + piece] != _ZEROS[:piece]:
                    _write(descriptor, zeros, start + at, piece)
                    written += piece
    return written


def _require_zero(descriptor: int, end: int, device: Path, stop: threading.Event) -> None:
    with mmap.mmap(-1, CHUNK_BYTES) as buffer:
        for start, length in _read(descriptor, end, buffer, stop):
            if buffer[:length] != _ZEROS[:length]:
                raise PoolError(f"{device} is not zero behind {start} after it was overwritten")


def _read(descriptor: int, end: int, buffer: mmap.mmap, stop: threading.Event) -> Iterator[tuple[int, int]]:
    """Each chunk up to `end`, in the buffer. With O_DIRECT a disk of 512 or 4096 bytes a sector reads whole sectors."""
    start = 0
    while start < end:
        if stop.is_set():
            raise InterruptedError("the wipe was interrupted")
        length = min(CHUNK_BYTES, end - start)
        if os.preadv(descriptor, [memoryview(buffer)[:length]], start) != length:
            raise PoolError(f"the volume ends before {start + length}")
        yield start, length
        start += length


def _write(descriptor: int, zeros: mmap.mmap, start: int, length: int) -> None:
    if os.pwritev(descriptor, [memoryview(zeros)[:length]], start) != length:
        raise PoolError(f"a write of {length} bytes at {start} was cut short")


def _discard(descriptor: int, size: int) -> bool:
    """Give the blocks back to the pool; False where the pool takes no discards: the removal of the volume does it."""
    try:
        fcntl.ioctl(descriptor, _BLKDISCARD, struct.pack("QQ", 0, size))
    except OSError:
        return False
    return True
