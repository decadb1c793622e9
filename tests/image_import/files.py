"""Disks and qcow2 files made byte by byte, good ones and bad ones."""

from __future__ import annotations

import struct
import zlib
from typing import Any

CLUSTER_BITS = 16
CLUSTER = 1 << CLUSTER_BITS
DISK = 1 << 20


def disk(*, bios: bool = True, esp: bool = False, gpt: bool = False, size: int = DISK) -> bytes:
    """A raw disk with the boot code of BIOS, an EFI system partition in an MBR, or one in a GPT."""
    content = bytearray(size)
    content[510:512] = b"\x55\xaa"
    if bios:
        content[:4] = b"boot"
    if esp:
        content[446 + 4] = 0xEF
    if gpt:
        content[512:520] = b"EFI PART"
        struct.pack_into("<QII", content, 512 + 72, 2, 128, 128)
        content[1024:1040] = bytes.fromhex("28732ac11ff8d211ba4b00a0c93ec93b")
    return bytes(content)


def qcow2(content: bytes | None = None, *, packed: bool = False, extension: bytes = b"", **header: Any) -> bytes:
    """A qcow2 file of version 3 with one cluster of a disk, and members of its header changed."""
    first = (disk() if content is None else content)[:CLUSTER]
    members = {
        "magic": b"QFI\xfb", "version": 3, "backing": 0, "backing_length": 0, "cluster_bits": CLUSTER_BITS, "size": DISK,
        "crypt": 0, "l1_entries": 1, "l1": CLUSTER, "refcounts": 3 * CLUSTER, "refcount_clusters": 1, "snapshots": 0,
        "snapshot_offset": 0, "incompatible": 0, "compatible": 0, "autoclear": 0, "refcount_order": 4, "length": 104, **header,
    }  # fmt: skip
    head = struct.pack(">4sIQIIQIIQQIIQQQQII", *members.values()) + extension
    if packed:
        packer = zlib.compressobj(9, zlib.DEFLATED, -12)
        data = packer.compress(first) + packer.flush()
        sectors = (4 * CLUSTER % 512 + len(data) - 1) // 512
        entry = (1 << 62) | sectors << (62 - (CLUSTER_BITS - 8)) | 4 * CLUSTER
    else:
        data, entry = first, (1 << 63) | 4 * CLUSTER
    l1 = struct.pack(">Q", (1 << 63) | 2 * CLUSTER)
    clusters = (head, l1, struct.pack(">Q", entry), b"", data)
    return b"".join(part.ljust(CLUSTER, b"\0") for part in clusters)
