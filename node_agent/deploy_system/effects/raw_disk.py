"""Reading and writing a disk past the page cache, so that what is read back comes from the disk."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

CHUNK_BYTES: Final = 2**20
_BLKSSZGET: Final = 0x1268
_BLKRRPART: Final = 0x125F
_BLOCK_BYTES_OF_FILES: Final = 4096


class RawDisk:
    """An open disk, or a regular file in its place. Every method raises OSError.

    A disk is opened with O_DIRECT. A regular file is too where its file system can; elsewhere its pages are dropped before reads.
    `exclusive` fails with EBUSY if the kernel has mounted any of its partitions.
    """

    def __init__(self, path: Path, writable: bool = False) -> None:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        is_block = stat.S_ISBLK(path.stat().st_mode)
        self._direct = True
        try:
            self._file = os.open(path, flags | os.O_DIRECT | (os.O_EXCL if is_block and writable else 0))
        except OSError:
            if is_block:
                raise
            self._file, self._direct = os.open(path, flags), False
        self._buffer = mmap.mmap(-1, CHUNK_BYTES)  # aligned to a page, as O_DIRECT needs it
        self._is_block = is_block
        self.size_bytes = os.lseek(self._file, 0, os.SEEK_END)
        self.block_bytes = _BLOCK_BYTES_OF_FILES
        """The unit of reads and writes; `sector_bytes` is that of partition tables."""
        self.sector_bytes = 512
        if is_block:
            answer = fcntl.ioctl(self._file, _BLKSSZGET, struct.pack("i", 0))
            self.block_bytes = self.sector_bytes = struct.unpack("i", answer)[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._file)

    def chunks(self, start: int, length: int) -> Iterator[tuple[int, memoryview]]:
        """The bytes from `start`, a multiple of 4096, in pieces of at most 1 MiB with offsets, each valid until the next."""
        at, end = start, min(start + length, self.size_bytes)
        while at < end:
            wanted = min(CHUNK_BYTES, end - at)
            padded = -(-wanted // self.block_bytes) * self.block_bytes
            if not self._direct:
                os.posix_fadvise(self._file, at, padded, os.POSIX_FADV_DONTNEED)
            got = min(os.preadv(self._file, [memoryview(self._buffer)[:padded]], at), wanted)
            if got == 0:
                raise OSError(5, f"the disk ends at byte {at}, before its size of {self.size_bytes}")
            yield at, memoryview(self._buffer)[:got]
            at += got

    def read(self, start: int, length: int) -> bytes:
        """The bytes of any range; short at the end of the disk."""
        first = start // 4096 * 4096
        data = b"".join(bytes(piece) for _, piece in self.chunks(first, start + length - first))
        return data[start - first :]

    def write(self, start: int, data: bytes | bytearray | memoryview) -> None:
        """Write any range; what shares a block with it is read and kept. Raises OSError with ENOSPC past the end."""
        if start + len(data) > self.size_bytes:
            raise OSError(28, f"byte {start + len(data)} is past the end of the disk")
        block = self.block_bytes
        first, end = start // block * block, min(-(-(start + len(data)) // block) * block, self.size_bytes)
        if first != start or end != start + len(data):
            whole = bytearray(self.read(first, end - first))
            whole[start - first : start - first + len(data)] = data
            data = whole
        view, at = memoryview(data), 0
        while at < len(view):
            size = min(CHUNK_BYTES, len(view) - at)
            self._buffer[:size] = view[at : at + size]
            written = os.pwrite(self._file, memoryview(self._buffer)[:size], first + at)
            if written % block:
                raise OSError(5, f"the disk took {written} bytes of {size}")
            at += written

    def fill(self, start: int, length: int) -> int:
        """Write zeroes from `start`, at most 1 MiB; the number of bytes written."""
        size = min(CHUNK_BYTES, length, self.size_bytes - start)
        self.write(start, bytes(size))
        return size

    def digest(self, length: int) -> str:
        """SHA-256 of the first bytes, in hex."""
        digest = hashlib.sha256()
        for _, piece in self.chunks(0, length):
            digest.update(piece)
        return digest.hexdigest()

    def flush(self) -> None:
        """Wait until the disk says that everything is on its medium."""
        os.fsync(self._file)

    def reread_partitions(self) -> None:
        """Have the kernel read the partition table; a kernel that cannot keeps the old one, and nothing here needs it."""
        if self._is_block:
            try:
                fcntl.ioctl(self._file, _BLKRRPART)
            except OSError:
                pass
