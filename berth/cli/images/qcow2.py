"""The header of a qcow2 file (QEMU's docs/interop/qcow2.rst), read without QEMU: what it holds and what it must not name."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import BinaryIO

MAGIC = b"QFI\xfb"
CLUSTER_BITS = range(9, 22)
L1_ENTRIES_MAX = 4 << 20
EXTENSIONS_MAX = 64
DIRTY, CORRUPT, DATA_FILE, COMPRESSION_TYPE, EXTENDED_L2 = (1 << bit for bit in range(5))
BACKING_FORMAT, DATA_FILE_NAME, ENCRYPTION = 0xE2792ACA, 0x44415441, 0x0537BE77
_OFFSETS = (1 << 56) - (1 << 9)
_COMPRESSED = 1 << 62


class NotAnImage(Exception):
    """The file must not become an image, for the reason in the text."""


@dataclass(frozen=True)
class Header:
    """What a header says. `first_cluster_bytes`: how much of the disk's beginning lies in its first cluster."""

    virtual_bytes: int
    cluster_bits: int
    l1_offset: int
    l1_entries: int
    extended: bool
    zlib: bool

    @property
    def first_cluster_bytes(self) -> int:
        """Bytes of one cluster."""
        return 1 << self.cluster_bits


def read_header(file: BinaryIO, size: int) -> Header:
    """The header of a file of `size` bytes that QEMU may open without touching another. Raises NotAnImage."""
    fixed = _read(file, 0, 72)
    version, backing, _, cluster_bits, virtual, crypt, l1_entries, l1_offset = struct.unpack_from(">IQIIQIIQ", fixed, 4)
    refcounts, _, snapshots = struct.unpack_from(">QII", fixed, 48)
    if version not in (2, 3):
        raise NotAnImage(f"it is qcow2 of version {version}; 2 and 3 are known")
    features, length, compression = _version_3(file) if version == 3 else (0, 72, 0)
    if backing:
        raise NotAnImage("it names another file as its backing file; merge it: qemu-img convert -O qcow2 IMAGE WHOLE")
    if features & DATA_FILE:
        raise NotAnImage("it keeps its data in another file; merge it: qemu-img convert -O qcow2 IMAGE WHOLE")
    if features & (DIRTY | CORRUPT):
        raise NotAnImage("it was not closed properly, or is marked as damaged; repair it: qemu-img check -r all IMAGE")
    if unknown := features & ~(COMPRESSION_TYPE | EXTENDED_L2):
        raise NotAnImage(f"it needs features that are not known here: {unknown:#x}")
    if crypt:
        raise NotAnImage("it is encrypted; the node encrypts the disk of each guest itself")
    if snapshots:
        raise NotAnImage(
            f"it has {snapshots} internal snapshots, which guests would carry; remove them: qemu-img snapshot -d"
        )
    if cluster_bits not in CLUSTER_BITS:
        raise NotAnImage(f"its clusters have 2^{cluster_bits} bytes; 2^9 to 2^21 are possible")
    _extensions(file, length, size)
    _tables(size, virtual, cluster_bits, l1_offset, l1_entries, refcounts, extended=bool(features & EXTENDED_L2))
    return Header(virtual, cluster_bits, l1_offset, l1_entries, bool(features & EXTENDED_L2), compression == 0)


def read_first_cluster(file: BinaryIO, header: Header) -> bytes | None:
    """The beginning of the disk; None if it is compressed by something else than zlib. Raises NotAnImage."""
    zeros = bytes(header.first_cluster_bytes)
    if header.l1_entries == 0:
        return zeros
    (l1,) = struct.unpack(">Q", _read(file, header.l1_offset, 8))
    if not l1 & _OFFSETS:
        return zeros
    (l2,) = struct.unpack(">Q", _read(file, l1 & _OFFSETS, 8))
    if l2 & _COMPRESSED:
        return _decompressed(file, header, l2) if header.zlib else None
    if not l2 & _OFFSETS or (l2 & 1 and not header.extended):
        return zeros
    # The last cluster may be cut short: what lies behind the end of the file reads as zeros.
    file.seek(l2 & _OFFSETS)
    return file.read(header.first_cluster_bytes).ljust(header.first_cluster_bytes, b"\0")


def _version_3(file: BinaryIO) -> tuple[int, int, int]:
    """Incompatible features, length of the header, and type of compression."""
    more = _read(file, 72, 32)
    features, _, _, _, length = struct.unpack(">QQQII", more)
    if not 104 <= length <= 4096:
        raise NotAnImage(f"its header claims {length} bytes")
    compression = _read(file, 104, 1)[0] if length > 104 and features & COMPRESSION_TYPE else 0
    return features, length, compression


def _extensions(file: BinaryIO, start: int, size: int) -> None:
    for _ in range(EXTENSIONS_MAX):
        if start + 8 > size:
            return
        kind, length = struct.unpack(">II", _read(file, start, 8))
        if kind == 0:
            return
        if kind in (BACKING_FORMAT, DATA_FILE_NAME):
            raise NotAnImage("its header names another file")
        if kind == ENCRYPTION:
            raise NotAnImage("it is encrypted; the node encrypts the disk of each guest itself")
        start += 8 + (length + 7) // 8 * 8
    raise NotAnImage(f"its header has more than {EXTENSIONS_MAX} extensions")


def _tables(
    size: int, virtual: int, cluster_bits: int, l1_offset: int, l1_entries: int, refcounts: int, *, extended: bool
) -> None:
    """Raise NotAnImage unless the tables lie within the file and cover the disk."""
    entry_bits = 4 if extended else 3
    covered = 1 << (2 * cluster_bits - entry_bits)
    if l1_entries > L1_ENTRIES_MAX or l1_entries * covered < virtual:
        raise NotAnImage(f"its table of {l1_entries} entries does not cover its {virtual} bytes")
    if l1_offset + 8 * l1_entries > size or refcounts >= size:
        raise NotAnImage("it is cut short: its tables lie behind its end")


def _decompressed(file: BinaryIO, header: Header, entry: int) -> bytes:
    shift = 62 - (header.cluster_bits - 8)
    offset, sectors = entry & ((1 << shift) - 1), (entry & (_COMPRESSED - 1)) >> shift
    file.seek(offset)
    unpacker = zlib.decompressobj(-12)
    try:
        # Bounded: what unpacks to more than a cluster is cut.
        return unpacker.decompress(file.read((sectors + 1) * 512 - offset % 512), header.first_cluster_bytes)
    except zlib.error as error:
        raise NotAnImage(f"its first cluster cannot be unpacked: {error}") from error


def _read(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    found = file.read(length)
    if len(found) < length:
        raise NotAnImage(f"it is cut short: {length} bytes are missing at {offset}")
    return found
