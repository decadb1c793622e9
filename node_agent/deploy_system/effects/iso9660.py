"""Writes a small ISO 9660 volume (ECMA-119) of files in its root directory, for what reads config drives: Linux.

Names are upper case with `.;1` behind, which Linux shows in lower case without it. No Rock Ridge, no Joliet.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

SECTOR: Final = 2048
_FIRST_FILE: Final = 21
_DATE: Final = bytes([70, 1, 1, 0, 0, 0, 0])
_NO_DATE: Final = b"0" * 16 + b"\0"


def iso9660(label: str, files: Mapping[str, bytes]) -> bytes:
    """The volume. Raises ValueError if the names do not fit into one sector, or a name or the label is too long."""
    at, content, records = _FIRST_FILE, bytearray(), []
    for name in sorted(files):
        data = files[name]
        records.append(_record(f"{name.upper()}.;1".encode("ascii"), at, len(data), is_directory=False))
        content += data.ljust(-(-len(data) // SECTOR) * SECTOR, b"\0")
        at += -(-len(data) // SECTOR)
    root = b"".join([_record(b"\0", 20, SECTOR, True), _record(b"\1", 20, SECTOR, True), *records])
    if len(root) > SECTOR or len(label) > 32:
        raise ValueError("the volume has too many files, or too long a label")
    paths = b"".join(struct.pack(f"{order}BBIH1sB", 1, 0, 20, 1, b"\0", 0).ljust(SECTOR, b"\0") for order in ("<", ">"))
    head = bytes(16 * SECTOR) + _descriptor(label, at) + b"\xffCD001\1".ljust(SECTOR, b"\0")
    return head + paths + root.ljust(SECTOR, b"\0") + bytes(content)


def _descriptor(label: str, sectors: int) -> bytes:
    parts = (
        b"\1CD001\1\0", b" " * 32, label.encode("ascii").ljust(32), bytes(8), _both_long(sectors), bytes(32),
        _both_short(1), _both_short(1), _both_short(SECTOR), _both_long(10),
        struct.pack("<II", 18, 0), struct.pack(">II", 19, 0), _record(b"\0", 20, SECTOR, True),
        b" " * (4 * 128), b" " * (3 * 37), 4 * _NO_DATE, b"\1",
    )  # fmt: skip
    return b"".join(parts).ljust(SECTOR, b"\0")


def _record(name: bytes, sector: int, size: int, is_directory: bool) -> bytes:
    body = struct.pack("B", 0) + _both_long(sector) + _both_long(size) + _DATE
    body += struct.pack("BBB", 2 if is_directory else 0, 0, 0) + _both_short(1) + struct.pack("B", len(name)) + name
    body += bytes((len(body) + 1) % 2)
    return struct.pack("B", len(body) + 1) + body


def _both_long(value: int) -> bytes:
    return struct.pack("<I", value) + struct.pack(">I", value)


def _both_short(value: int) -> bytes:
    return struct.pack("<H", value) + struct.pack(">H", value)
