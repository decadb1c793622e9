"""The partition table of an image on a larger disk: the last partition grows, and a config drive comes behind it.

Written byte by byte (UEFI 2.10 §5.2.1 and §5.3), so that it can be read back, and is the same on any kernel.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass
from typing import Final

from node_agent.deploy_system.effects.raw_disk import RawDisk

ALIGNMENT_BYTES: Final = 2**20
ESP_TYPE: Final = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b").bytes_le
LINUX_TYPE: Final = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4").bytes_le
_HEADER: Final = struct.Struct("<8sIIIIQQQQ16sQIII")
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


@dataclass(frozen=True)
class _Gpt:
    """A partition table as the image has it; `entries` are changed in place."""

    revision: int
    first_usable: int
    guid: bytes
    entries_at: int
    count: int
    entries: bytearray

    @property
    def used(self) -> dict[int, tuple[bytes, bytes, int, int, int, bytes]]:
        """Entries with a type, by index: type, GUID, first and last sector, attributes, name."""
        found = {index: _ENTRY.unpack_from(self.entries, index * _ENTRY.size) for index in range(self.count)}
        return {index: entry for index, entry in found.items() if any(entry[0])}


def _read_gpt(disk: RawDisk) -> _Gpt:
    """The image's table. Raises TableUnusable."""
    sector = disk.sector_bytes
    raw = disk.read(sector, _HEADER.size)
    _, revision, header_bytes, header_crc, _, _, _, first, _, guid, at, count, entry_bytes, entries_crc = (
        _HEADER.unpack(raw)
    )
    if header_bytes != _HEADER.size or entry_bytes != _ENTRY.size or not 1 <= count * entry_bytes <= _ENTRIES_BYTES_MAX:
        raise TableUnusable("the image's GPT has a header or entries of an unknown size")
    entries = bytearray(disk.read(at * sector, count * entry_bytes))
    if zlib.crc32(entries) != entries_crc or _header_crc(raw) != header_crc:
        raise TableUnusable("the checksum of the image's GPT is wrong")
    return _Gpt(revision, first, guid, at, count, entries)


def _extend_gpt(disk: RawDisk, mbr: bytes, config_bytes: int, grow: bool) -> Extended:
    sector, total = disk.sector_bytes, disk.size_bytes // disk.sector_bytes
    gpt = _read_gpt(disk)
    used = gpt.used
    if not used:
        raise TableUnusable("the image has an empty partition table")
    last_usable = total - 2 - -(-len(gpt.entries) // sector)
    start = _config_start(last_usable + 1, config_bytes, sector)
    last = max(used, key=lambda index: used[index][3])
    kind, unique, begins, ends, attributes, name = used[last]
    if ends >= start:
        raise TableFull(f"the image's last partition ends at sector {ends}; the config drive needs {start} on")
    free = next((index for index in range(gpt.count) if index not in used), None)
    if free is None:
        raise TableUnusable(f"all {gpt.count} entries of the image's GPT are used")
    if grow:
        _ENTRY.pack_into(gpt.entries, last * _ENTRY.size, kind, unique, begins, start - 1, attributes, name)
    config_end, config_name = start + config_bytes // sector - 1, "config-drive".encode("utf-16-le")
    config = (LINUX_TYPE, uuid.uuid4().bytes_le, start, config_end, 0, config_name)
    _ENTRY.pack_into(gpt.entries, free * _ENTRY.size, *config)
    _write_gpt(disk, gpt, last_usable)
    protective = bytearray(mbr)
    for index in range(4):
        entry = _MBR_ENTRY.unpack_from(mbr, 446 + 16 * index)
        if entry[2] == _PROTECTIVE:
            _MBR_ENTRY.pack_into(protective, 446 + 16 * index, *entry[:5], min(total - 1, 0xFFFFFFFF))
    _write(disk, 0, bytes(protective))
    disk.flush()
    esps = [index for index, entry in used.items() if entry[0] == ESP_TYPE]
    esp = _gpt_partition(gpt.entries, min(esps), _ENTRY.size) if esps else None
    return Extended(start * sector, (start - 1 - ends) * sector if grow else 0, esp)


def _write_gpt(disk: RawDisk, gpt: _Gpt, last_usable: int) -> None:
    """The backup first: at every moment one of the two copies is whole."""
    sector, total = disk.sector_bytes, disk.size_bytes // disk.sector_bytes
    entries = bytes(gpt.entries)

    def header(own: int, other: int, at: int) -> bytes:
        fields = (
            b"EFI PART", gpt.revision, _HEADER.size, 0, 0, own, other, gpt.first_usable, last_usable, gpt.guid, at,
            gpt.count, _ENTRY.size, zlib.crc32(entries),
        )  # fmt: skip
        packed = bytearray(_HEADER.pack(*fields))
        struct.pack_into("<I", packed, 16, _header_crc(packed))
        return bytes(packed).ljust(sector, b"\0")

    _write(disk, (last_usable + 1) * sector, entries)
    _write(disk, (total - 1) * sector, header(total - 1, 1, last_usable + 1))
    disk.flush()
    _write(disk, gpt.entries_at * sector, entries)
    _write(disk, sector, header(1, total - 1, gpt.entries_at))


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
