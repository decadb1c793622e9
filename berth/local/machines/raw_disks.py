"""What is on the raw disk of a machine, read from outside and whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class RawContent:
    """How many bytes were read, how many of them are not zero, and whether the marker is among them."""

    read_bytes: int
    used_bytes: int
    has_marker: bool


def read_raw(path: Path, marker: bytes) -> RawContent:
    """Read every byte of the disk."""
    read = used = 0
    found, before = False, b""
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            read += len(piece)
            used += len(piece) - piece.count(0)
            found = found or marker in before + piece
            before = (before + piece)[-(len(marker) - 1) :] if len(marker) > 1 else b""
    return RawContent(read, used, found)
