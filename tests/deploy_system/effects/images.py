"""Disk images with a partition table, written here from the formats' own definitions."""

from __future__ import annotations

import os
import struct
import uuid
import zlib

MIB = 2**20
ESP = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
LINUX = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")


def gpt_image(size_bytes: int = 6 * MIB, esp: bool = True) -> bytes:
    """A GPT with an EFI system partition and a root partition, each of 2 MiB, full of random bytes."""
    total = size_bytes // 512
    image = bytearray(os.urandom(size_bytes))
    entries = bytearray(128 * 128)
    kinds = [ESP if esp else LINUX, LINUX]
    for index, kind in enumerate(kinds):
        start = (1 + 2 * index) * 2048
        entry = (kind.bytes_le, uuid.uuid4().bytes_le, start, start + 4095, 0, f"part{index}".encode("utf-16-le"))
        struct.pack_into("<16s16sQQQ72s", entries, index * 128, *entry)
    disk = uuid.uuid4().bytes_le

    def header(own: int, other: int, at: int) -> bytes:
        fields = [b"EFI PART", 0x10000, 92, 0, 0, own, other, 34, total - 34, disk, at, 128, 128, zlib.crc32(entries)]
        packed = struct.pack("<8sIIIIQQQQ16sQIII", *fields)
        return packed[:16] + struct.pack("<I", zlib.crc32(packed)) + packed[20:]

    image[:512] = (
        bytes(446)
        + struct.pack("<B3sB3sII", 0, b"\0\2\0", 0xEE, b"\xff\xff\xff", 1, total - 1)
        + bytes(48)
        + b"\x55\xaa"
    )
    image[512:1024] = header(1, total - 1, 2).ljust(512, b"\0")
    image[1024 : 1024 + len(entries)] = entries
    image[(total - 33) * 512 : (total - 1) * 512] = entries
    image[(total - 1) * 512 :] = header(total - 1, 1, total - 33).ljust(512, b"\0")
    return bytes(image)


def mbr_image(size_bytes: int = 4 * MIB, kinds: tuple[int, ...] = (0xEF,)) -> bytes:
    """An MBR with partitions of 1 MiB of these types."""
    image = bytearray(os.urandom(size_bytes))
    image[:512] = bytes(440) + b"\x12\x34\x56\x78\0\0" + bytes(64) + b"\x55\xaa"
    for index, kind in enumerate(kinds):
        struct.pack_into("<B3sB3sII", image, 446 + 16 * index, 0, b"\0\0\0", kind, b"\0\0\0", 2048 * (1 + index), 2048)
    return bytes(image)
