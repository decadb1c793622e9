"""The partition table of an image on a larger disk: the last partition grows, and a config drive comes behind it.

Written byte by byte (UEFI 2.10 §5.2.1 and §5.3), so that it can be read back, and is the same on any kernel.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass
from typing import Final

from node_agent.deploy_system.work.raw_disk import RawDisk

ALIGNMENT_BYTES: Final = 2**20
ESP_TYPE: Final = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b").bytes_le
LINUX_TYPE: Final = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4").bytes_le
_HEADER: Final = struct.Struct("<8s4sIIIQQQQ16sQIII")
_ENTRY: Final = struct.Struct("<16s16sQQQ72s")
_MBR_ENTRY: Final = struct.Struct("<B3sB3sII")
_ENTRIES_BYTES_MAX: Final = 2**20
_PROTECTIVE: Final = 0xEE
_EXTENDED: Final = (0x05, 0x0F, 0x85)


class TableUnusable(Exception):
    """The image has no partition table that can be extended; the message says why."""


class TableFull(Exception):
    """The disk has no room behind the image for a config drive."""


@dataclass(frozen=True)
class Partition:
    """A partition as a boot entry names it: `signature` is its GUID, or the disk's MBR signature in the first four bytes."""

    number: int
    start: int
    sectors: int
    signature: bytes
    is_gpt: bool


@dataclass(frozen=True)
class Extended:
    """What was done: where the config drive begins, by how much the last partition grew, and the EFI system partition."""

    config_start_bytes: int
    grown_bytes: int
    esp: Partition | None


def extend_table(disk: RawDisk, config_bytes: int, grow: bool) -> Extended:
    """Move the backup table to the disk's end, add a partition for the config drive, and grow the one before if asked to.

    Read back: raises OSError if the disk has another table afterwards. Raises TableUnusable, TableFull.
    """
    sector = disk.sector_bytes
    mbr = disk.read(0, 512)
    if mbr[510:] != b"\x55\xaa":
        raise TableUnusable("the image has no partition table")
    kinds = [_MBR_ENTRY.unpack_from(mbr, 446 + 16 * index)[2] for index in range(4)]
    if _PROTECTIVE in kinds:
        if disk.read(sector, 8) != b"EFI PART":
            raise TableUnusable(f"the image has no GPT for sectors of {sector} bytes")
        return _extend_gpt(disk, mbr, config_bytes, grow)
    if any(kind in _EXTENDED for kind in kinds):
        raise TableUnusable("the image has an extended partition; use a GPT")
    if not any(kinds):
        raise TableUnusable("the image has an empty partition table")
    return _extend_mbr(disk, bytearray(mbr), config_bytes, grow)


def _config_start(end: int, config_bytes: int, sector: int) -> int:
    """The sector where the config drive begins, so that it ends before the sector `end`."""
    return (end * sector - config_bytes) // ALIGNMENT_BYTES * ALIGNMENT_BYTES // sector


def _extend_gpt(disk: RawDisk, mbr: bytes, config_bytes: int, grow: bool) -> Extended:
    sector, total = disk.sector_bytes, disk.size_bytes // disk.sector_bytes
    head = _HEADER.unpack(disk.read(sector, _HEADER.size))
    _, revision, header_bytes, _, _, _, _, first, _, guid, entries_at, count, entry_bytes, entries_crc = head
    if header_bytes != _HEADER.size or entry_bytes != _ENTRY.size or not 1 <= count * entry_bytes <= _ENTRIES_BYTES_MAX:
        raise TableUnusable("the image's GPT has a header or entries of an unknown size")
    entries = bytearray(disk.read(entries_at * sector, count * entry_bytes))
    if zlib.crc32(entries) != entries_crc or _header_crc(disk.read(sector, _HEADER.size)) != head[3]:
        raise TableUnusable("the checksum of the image's GPT is wrong")
    entries_sectors = -(-count * entry_bytes // sector)
    last_usable = total - 2 - entries_sectors
    start = _config_start(last_usable + 1, config_bytes, sector)
    used = {
        index: _ENTRY.unpack_from(entries, index * entry_bytes)
        for index in range(count)
        if any(entries[index * entry_bytes : index * entry_bytes + 16])
    }
    if not used:
        raise TableUnusable("the image has an empty partition table")
    last = max(used, key=lambda index: int(used[index][3]))
    if used[last][3] >= start:
        raise TableFull(f"the image's last partition ends at sector {used[last][3]}; the config drive needs {start} on")
    free = next((index for index in range(count) if index not in used), None)
    if free is None:
        raise TableUnusable(f"all {count} entries of the image's GPT are used")
    grown = (start - 1 - used[last][3]) * sector if grow else 0
    if grow:
        kind, unique, begins, _, attributes, name = used[last]
        _ENTRY.pack_into(entries, last * entry_bytes, kind, unique, begins, start - 1, attributes, name)
    config = (
        LINUX_TYPE,
        uuid.uuid4().bytes_le,
        start,
        start + config_bytes // sector - 1,
        0,
        "config-drive".encode("utf-16-le"),
    )
    _ENTRY.pack_into(entries, free * entry_bytes, *config)
    crc = zlib.crc32(entries)

    def header(own: int, other: int, at: int) -> bytes:
        fields = (
            b"EFI PART",
            revision,
            header_bytes,
            0,
            0,
            own,
            other,
            first,
            last_usable,
            guid,
            at,
            count,
            entry_bytes,
            crc,
        )
        packed = bytearray(_HEADER.pack(*fields))
        struct.pack_into("<I", packed, 16, _header_crc(packed))
        return bytes(packed).ljust(sector, b"\0")

    # The backup first: at every moment one of the two copies is whole.
    _write(disk, (last_usable + 1) * sector, bytes(entries))
    _write(disk, (total - 1) * sector, header(total - 1, 1, last_usable + 1))
    disk.flush()
    _write(disk, entries_at * sector, bytes(entries))
    _write(disk, sector, header(1, total - 1, entries_at))
    protective = bytearray(mbr)
    for index in range(4):
        entry = _MBR_ENTRY.unpack_from(mbr, 446 + 16 * index)
        if entry[2] == _PROTECTIVE:
            _MBR_ENTRY.pack_into(protective, 446 + 16 * index, *entry[:5], min(total - 1, 0xFFFFFFFF))
    _write(disk, 0, bytes(protective))
    disk.flush()
    esps = [index for index, entry in used.items() if entry[0] == ESP_TYPE]
    return Extended(start * sector, grown, _gpt_partition(entries, min(esps), entry_bytes) if esps else None)


def _gpt_partition(entries: bytearray, index: int, entry_bytes: int) -> Partition:
    _, unique, begins, ends, _, _ = _ENTRY.unpack_from(entries, index * entry_bytes)
    return Partition(index + 1, begins, ends - begins + 1, unique, is_gpt=True)


def _header_crc(header: bytes | bytearray) -> int:
    return zlib.crc32(bytes(header[:16]) + bytes(4) + bytes(header[20 : _HEADER.size]))


def _extend_mbr(disk: RawDisk, mbr: bytearray, config_bytes: int, grow: bool) -> Extended:
    sector = disk.sector_bytes
    start = _config_start(min(disk.size_bytes // sector, 2**32 - 1), config_bytes, sector)  # an MBR has 32 bits
    entries = {index: _MBR_ENTRY.unpack_from(mbr, 446 + 16 * index) for index in range(4)}
    used = {index: entry for index, entry in entries.items() if entry[2]}
    last = max(used, key=lambda index: int(used[index][4] + used[index][5]))
    flag, first, kind, end, begins, sectors = used[last]
    if begins + sectors > start:
        raise TableFull(
            f"the image's last partition ends at sector {begins + sectors - 1}; the config drive needs {start} on"
        )
    free = next((index for index in range(4) if index not in used), None)
    if free is None:
        raise TableUnusable("all four entries of the image's MBR are used")
    grown = (start - begins - sectors) * sector if grow else 0
    if grow:
        _MBR_ENTRY.pack_into(mbr, 446 + 16 * last, flag, first, kind, end, begins, start - begins)
    far = b"\xfe\xff\xff"  # beyond what cylinders, heads and sectors can name
    _MBR_ENTRY.pack_into(mbr, 446 + 16 * free, 0, far, 0x83, far, start, config_bytes // sector)
    _write(disk, 0, bytes(mbr))
    disk.flush()
    esps = [index for index, entry in used.items() if entry[2] == 0xEF]
    esp = None
    if esps:
        entry = _MBR_ENTRY.unpack_from(mbr, 446 + 16 * min(esps))
        esp = Partition(min(esps) + 1, entry[4], entry[5], bytes(mbr[440:444]).ljust(16, b"\0"), is_gpt=False)
    return Extended(start * sector, grown, esp)


def _write(disk: RawDisk, start: int, data: bytes) -> None:
    """Write and read back. Raises OSError."""
    disk.write(start, data)
    if disk.read(start, len(data)) != data:
        raise OSError(5, f"the partition table at byte {start} is not what was written")
