"""WAL files by name: which segments are there, from where to where without a gap, and what a restore needs of them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_SEGMENT = re.compile(r"([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{8})(\.partial)?")
_HISTORY = re.compile(r"[0-9A-F]{8}\.history")


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A segment: its timeline, its number counted from the beginning of the WAL, and whether it is still being received."""

    timeline: int
    number: int
    partial: bool = False


def position(lsn: str) -> int:
    """A log sequence number such as 16/B374D848 as bytes."""
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def segment_of(name: str, segment_bytes: int) -> Segment | None:
    """The segment that a file name means; None for any other file."""
    found = _SEGMENT.fullmatch(name)
    if found is None:
        return None
    timeline, high, low, partial = found.groups()
    return Segment(int(timeline, 16), int(high, 16) * ((1 << 32) // segment_bytes) + int(low, 16), partial is not None)


def stored_files(wal: Path) -> dict[str, Path]:
    """Every file of the streamed WAL by the name that a restore asks for; a complete segment wins over an unfinished one.

    The receiver names the newest segment .partial; a restore that did not rename it would end one segment early.
    """
    found: dict[str, Path] = {}
    for path in sorted(wal.glob("*/*")):
        name = path.name.removesuffix(".partial")
        if _SEGMENT.fullmatch(name) or _HISTORY.fullmatch(name):
            known = found.get(name)
            if known is None or known.name.endswith(".partial"):
                found[name] = path
    return found


def contiguous_until(numbers: Iterable[int], first: int) -> int | None:
    """The last of the segments that follow `first` without a gap; None if `first` itself is missing."""
    present = set(numbers)
    if first not in present:
        return None
    last = first
    while last + 1 in present:
        last += 1
    return last


def has_gap(numbers: Iterable[int], first: int) -> bool:
    """Whether a segment from `first` on is missing although a later one is there."""
    later = {number for number in numbers if number >= first}
    return bool(later) and contiguous_until(later, first) != max(later)


def numbers_in(wal: Path, segment_bytes: int) -> set[int]:
    """The numbers of the stored segments, of every timeline."""
    segments = (segment_of(name, segment_bytes) for name in stored_files(wal))
    return {segment.number for segment in segments if segment is not None}


def stage(wal: Path, first: int, segment_bytes: int, target: Path, own: Callable[[Path], None], *, link: bool) -> int:
    """Put the segments from `first` on, and every history, into `target` under the names that a restore asks for.

    Complete files are linked where `link` allows it. Returns how many segments were put there.
    """
    count = 0
    for name, path in stored_files(wal).items():
        segment = segment_of(name, segment_bytes)
        if segment is not None and segment.number < first:
            continue
        count += segment is not None
        staged = target / name
        if link and not path.name.endswith(".partial"):
            try:
                os.link(path, staged)
                continue
            except OSError:
                pass  # another file system
        try:
            shutil.copyfile(path, staged)
        except FileNotFoundError:
            # The receiver has completed it meanwhile.
            shutil.copyfile(path.with_name(name), staged)
        own(staged)
    return count
