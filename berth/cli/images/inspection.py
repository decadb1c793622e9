"""Checks of a file that is to become an image: format, bounds, and the firmware that it boots with."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from berth.cli.images.qcow2 import MAGIC, NotAnImage, read_first_cluster, read_header

SECTOR_BYTES = 512
BEGINNING_BYTES = 64 << 10
ESP = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b").bytes_le
ESP_OF_MBR = 0xEF
GPT_ENTRIES_MAX = 128
# Where each begins; of formats that qemu-img would recognise, and of packed files.
OTHERS = (
    (0, b"\x1f\x8b", "packed by gzip"), (0, b"\xfd7zXZ\0", "packed by xz"), (0, b"\x28\xb5\x2f\xfd", "packed by zstd"),
    (0, b"BZh", "packed by bzip2"), (0, b"PK\x03\x04", "a zip archive"), (257, b"ustar", "a tar archive"),
    (0, b"KDMV", "a VMDK disk"), (0, b"# Disk DescriptorFile", "a VMDK descriptor"), (64, b"\x7f\x10\xda\xbe", "a VDI disk"),
    (0, b"vhdxfile", "a VHDX disk"), (0, b"conectix", "a VHD disk"), (0, b"QED\0", "a QED disk"),
    (0, b"LUKS\xba\xbe", "encrypted by LUKS"), (0, b"<", "a page of text, such as a web server's error"),
)  # fmt: skip


@dataclass(frozen=True)
class Bounds:
    """The largest file, and the largest disk that it unpacks to, in bytes."""

    file_bytes_max: int
    virtual_bytes_max: int


@dataclass(frozen=True)
class Inspected:
    """What a file is. `boots_with`: the firmwares that its partition table serves; None: that could not be read."""

    format: str
    size_bytes: int
    virtual_bytes: int
    boots_with: frozenset[str] | None


def inspect(path: Path, bounds: Bounds) -> Inspected:
    """What the file is. Raises NotAnImage, OSError."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size == 0:
            raise NotAnImage("it is empty")
        if size > bounds.file_bytes_max:
            raise NotAnImage(f"it has {size} bytes; at most {bounds.file_bytes_max} are accepted (--bytes-max)")
        beginning = file.read(BEGINNING_BYTES)
        if beginning.startswith(MAGIC):
            return _qcow2(file, size, bounds)
        return _raw(beginning, size, bounds)


def _qcow2(file: BinaryIO, size: int, bounds: Bounds) -> Inspected:
    header = read_header(file, size)
    _require_bounded(header.virtual_bytes, bounds)
    beginning = read_first_cluster(file, header)
    readable = beginning is not None and len(beginning) >= 34 * SECTOR_BYTES
    return Inspected("qcow2", size, header.virtual_bytes, _firmwares(beginning or b"") if readable else None)


def _raw(beginning: bytes, size: int, bounds: Bounds) -> Inspected:
    for offset, magic, what in OTHERS:
        if beginning[offset : offset + len(magic)] == magic:
            raise NotAnImage(f"it is {what}; an image is qcow2 or raw, not packed")
    if size % SECTOR_BYTES:
        raise NotAnImage(
            f"it is no qcow2, and its {size} bytes are no raw disk: they are no multiple of {SECTOR_BYTES}"
        )
    _require_bounded(size, bounds)
    found = _firmwares(beginning)
    if not found:
        raise NotAnImage("it is no qcow2, and as a raw disk it has neither a boot sector nor an EFI system partition")
    return Inspected("raw", size, size, found)


def _require_bounded(virtual_bytes: int, bounds: Bounds) -> None:
    if virtual_bytes == 0:
        raise NotAnImage("the disk in it has no bytes")
    if virtual_bytes > bounds.virtual_bytes_max:
        raise NotAnImage(
            f"it unpacks to {virtual_bytes} bytes; at most {bounds.virtual_bytes_max} are accepted (--virtual-bytes-max)"
        )


def _firmwares(beginning: bytes) -> frozenset[str]:
    """The firmwares for which the beginning of a disk has something to start."""
    if beginning[510:512] != b"\x55\xaa":
        return frozenset()
    kinds = [beginning[446 + 16 * number + 4] for number in range(4)]
    uefi = ESP_OF_MBR in kinds or _has_esp(beginning)
    bios = any(beginning[:440])
    return frozenset(name for name, boots in (("bios", bios), ("uefi", uefi)) if boots)


def _has_esp(beginning: bytes) -> bool:
    if beginning[512:520] != b"EFI PART":
        return False
    first, count, length = struct.unpack_from("<QII", beginning, 512 + 72)
    places = (first * SECTOR_BYTES + number * length for number in range(min(count, GPT_ENTRIES_MAX)))
    return any(beginning[place : place + 16] == ESP for place in places)
