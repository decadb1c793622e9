"""WAL files by name: which segments are there, from where to where without a gap, and what a restore needs of them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_SEGMENT = re.compile(r"([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{8})(\.partial)?")
_HISTORY = re.compile(r"[0-9A-F]{8}\.history")
_ANCESTOR = re.compile(r"^\s*(\d+)\s+([0-9A-F]+/[0-9A-F]+)", re.M)
# A page of WAL begins with a header, the first one of a segment with a longer one; it has the length of a record's rest.
_PAGE_BYTES, _HEADER_BYTES, _LONG_HEADER_BYTES, _REST_AT = 8192, 24, 40, 16


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


def name_of(timeline: int, number: int, segment_bytes: int) -> str:
    """The file name of a segment."""
    high, low = divmod(number, (1 << 32) // segment_bytes)
    return f"{timeline:08X}{high:08X}{low:08X}"


def stored_files(wal: Path, pattern: str = "*/*") -> dict[str, Path]:
    """Every file of the streamed WAL by the name that a restore asks for; a complete segment wins over an unfinished one.

    The receiver names the newest segment .partial; a restore that did not rename it would end one segment early.
    """
    found: dict[str, Path] = {}
    for path in sorted(wal.glob(pattern)):
        name = path.name.removesuffix(".partial")
        if _SEGMENT.fullmatch(name) or _HISTORY.fullmatch(name):
            known = found.get(name)
            if known is None or known.name.endswith(".partial"):
                found[name] = path
    return found


@dataclass(frozen=True, slots=True)
class Stored:
    """The streamed WAL: whether each segment, by timeline and number, is complete; and where each timeline left its ancestors.

    A history lists, from the oldest ancestor on, its timeline and the number of the segment in which the next one begins.
    """

    complete: Mapping[tuple[int, int], bool]
    histories: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a restore gets: the last segment that it needs as (timeline, number), None without any; and if one is missing."""

    last: tuple[int, int] | None
    gap: bool


def read_stored(wal: Path, segment_bytes: int, pattern: str = "*/*") -> Stored:
    """What the files say that match the pattern: by default those of every run. Raises OSError."""
    complete: dict[tuple[int, int], bool] = {}
    histories: dict[int, list[tuple[int, int]]] = {}
    for name, path in stored_files(wal, pattern).items():
        segment = segment_of(name, segment_bytes)
        if segment is not None:
            # The receiver may have completed it since the folder was read.
            complete[segment.timeline, segment.number] = path.name == name or path.with_name(name).exists()
        else:
            found = _ANCESTOR.findall(path.read_text(errors="replace"))
            histories[int(name[:8], 16)] = [(int(parent), position(lsn) // segment_bytes) for parent, lsn in found]
    return Stored(complete, histories)


def reach_of(stored: Stored, timeline: int, first: int) -> Reach:
    """How far a restore of a backup of this timeline gets, whose first segment is `first`, as PostgreSQL follows `latest`.

    An unfinished segment may only be the last one. Where a timeline begins, its own segment is needed, not its ancestor's.
    """
    target = timeline
    while target + 1 in stored.histories:
        target += 1
    history = list(stored.histories.get(target, ()))
    if target != timeline and dict(history).get(timeline, -1) < first:
        return Reach(None, gap=True)  # PostgreSQL refuses to follow it
    begins = [(target, history[-1][1] if history else 0)]
    begins += [(history[at][0], history[at - 1][1] if at else 0) for at in reversed(range(len(history)))]

    def owner(number: int) -> int:
        return next((line for line, begin in begins if number >= begin), timeline)

    needed = [number for line, number in stored.complete if number >= first and owner(number) == line]
    if not needed:
        return Reach(None, gap=False)
    last = max(needed)
    gap = any(not stored.complete.get((owner(number), number)) for number in range(first, last))
    return Reach((owner(last), last), gap)


def begins_record(path: Path) -> bool:
    """Whether a record begins in a segment, and not only a page header and the rest of a record of the segment before."""
    with path.open("rb") as file:
        content = file.read()
    length = len(content.rstrip(b"\0"))
    if length <= _LONG_HEADER_BYTES:
        return False
    rest = int.from_bytes(content[_REST_AT : _REST_AT + 4], sys.byteorder)
    headers = (rest // (_PAGE_BYTES - _HEADER_BYTES) + 1) * _HEADER_BYTES
    return length > _LONG_HEADER_BYTES + rest + headers


def stage(wal: Path, first: int, segment_bytes: int, target: Path, own: Callable[[Path], None], *, link: bool) -> int:
    """Put the segments from `first` on, and every history, into `target` under the names that a restore asks for.

    Complete files are linked where `link` allows it, unfinished ones have their whole size. Returns how many segments there are.
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
        if path.name.endswith(".partial") and staged.stat().st_size < segment_bytes:
            # Torn by a full disk; PostgreSQL refuses a file of another size.
            os.truncate(staged, segment_bytes)
        own(staged)
    return count
