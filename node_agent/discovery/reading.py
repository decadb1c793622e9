"""Bounded reading below one root directory: `/` on a node, a recorded tree in tests.

Nothing here raises: a file that is missing is absent, and one that is unreadable, too large or strange becomes a gap.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path

from node_agent.wire.topology import GAPS_MAX, NAME_MAX, PCI_ADDRESS, REASON_MAX, TEXT_MAX, Gap

FILE_BYTES_MAX = 64 * 1024
ENTRIES_MAX = 4096
INDEX_MAX = 65_535
_PCI = re.compile(PCI_ADDRESS)
_PCI_SPELLINGS = re.compile(r"^([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,2}):([01]?[0-9a-fA-F])\.([0-7])$")
_MORE = Gap(subject="gaps", reason="more were left out")
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO)


class Gaps:
    """What could not be read. Bounded; the last entry says that more were left out."""

    def __init__(self, known: Sequence[Gap] = ()) -> None:
        self._kept = [gap for gap in known if gap != _MORE]
        self._are_more = _MORE in known

    def add(self, subject: str, reason: str) -> None:
        """Record that `subject` could not be read."""
        gap = Gap(subject=printable(subject)[-TEXT_MAX:] or "?", reason=printable(reason)[:REASON_MAX] or "?")
        if gap in self._kept:
            return
        if len(self._kept) < GAPS_MAX - 1:
            self._kept.append(gap)
        else:
            self._are_more = True

    def add_all(self, known: Sequence[Gap]) -> None:
        """Record what another part could not read."""
        for gap in known:
            if gap == _MORE:
                self._are_more = True
            else:
                self.add(gap.subject, gap.reason)

    def all(self) -> list[Gap]:
        """Every gap, in the order found."""
        return [*self._kept, _MORE] if self._are_more else self._kept


class Tree:
    """The files below `root`."""

    def __init__(self, root: Path, gaps: Gaps) -> None:
        self.root = root
        self.gaps = gaps

    def raw(self, path: str) -> bytes | None:
        """The content of a file; None if it is absent, or unreadable or larger than 64 KiB, which is a gap."""
        try:
            # O_NONBLOCK: a FIFO in place of a file must not block.
            descriptor = os.open(self.root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                data = os.read(descriptor, FILE_BYTES_MAX + 1)
                while len(data) <= FILE_BYTES_MAX and (more := os.read(descriptor, FILE_BYTES_MAX + 1 - len(data))):
                    data += more
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            if not isinstance(error, OSError) or error.errno not in _ABSENT:
                self._cannot(path, error)
            return None
        if len(data) > FILE_BYTES_MAX:
            self.gaps.add(path, f"is larger than {FILE_BYTES_MAX} bytes")
            return None
        return data

    def line(self, path: str, length_max: int = TEXT_MAX) -> str | None:
        """The printable content of a file, cut at `length_max`; None if there is none."""
        data = self.raw(path)
        if data is None:
            return None
        # "(efault)": a disk's driver has not identified it yet.
        text = printable(data.decode("utf-8", errors="replace")).strip()
        return text[:length_max].strip() or None if text != "(efault)" else None

    def number(self, path: str, most: int = INDEX_MAX) -> int | None:
        """The whole number in a file, decimal or 0x; None if it is absent or negative, which sysfs writes for "none"."""
        text = self.line(path)
        if text is None:
            return None
        try:
            value = int(text, 0)
        except ValueError:
            self.gaps.add(path, f"is not a number: {text}")
            return None
        if value > most:
            self.gaps.add(path, f"is larger than {most}")
            return None
        return value if value >= 0 else None

    def names(self, path: str) -> list[str] | None:
        """The names in a directory, sorted; None if it cannot be listed. More than 4096 are cut, which is a gap."""
        names: list[str] = []
        try:
            with os.scandir(self.root / path) as entries:
                for entry in entries:
                    if len(names) == ENTRIES_MAX:
                        self.gaps.add(path, f"has more than {ENTRIES_MAX} entries")
                        break
                    names.append(entry.name)
        except OSError as error:
            if error.errno not in _ABSENT:
                self._cannot(path, error)
            return None
        return sorted(names)

    def link_name(self, path: str) -> str | None:
        """The last part of what a symbolic link points to; None if there is no link."""
        try:
            return printable((self.root / path).readlink().name)[:NAME_MAX] or None
        except OSError as error:
            if error.errno not in (*_ABSENT, errno.EINVAL):
                self._cannot(path, error)
            return None

    def has(self, path: str) -> bool:
        """Whether anything is there."""
        return (self.root / path).exists()

    def _cannot(self, path: str, error: Exception) -> None:
        self.gaps.add(path, (error.strerror if isinstance(error, OSError) else None) or type(error).__name__)


def printable(text: str) -> str:
    """The text with a question mark for each character outside printable ASCII, and for those that JSON writes as two; white
    space becomes one space."""
    plain = " ".join(text.replace("\0", "").split())
    return "".join(letter if " " <= letter <= "~" and letter not in '"\\' else "?" for letter in plain)


def pci_address(text: str | None) -> str | None:
    """The spelling of sysfs for an address in any spelling (NVML: `00000000:0F:00.0`); None if it is none."""
    found = _PCI_SPELLINGS.match(text or "")
    if found is None:
        return None
    domain, bus, device, function = (int(part, 16) for part in found.groups())
    address = f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
    return address if _PCI.match(address) else None
