"""The common medium, and a machine's own one: the same bytes but for the configuration, which is put in while they are read."""

from __future__ import annotations

import hashlib
import mmap
import os
from pathlib import Path
from typing import BinaryIO, Final, Protocol, Self

from node_agent.media.placeholder import CONFIGURATION_BYTES, PLACEHOLDER

_SECTOR_BYTES: Final = 2048


class MediumUnusable(Exception):
    """The file is no deploy medium, or cannot be read; the message says why."""


class MediumChanged(Exception):
    """The file is shorter than it was when it was opened: what follows cannot be served."""


class Content(Protocol):
    """What is served: its size, its SHA-256, and its bytes with a machine's configuration in their place."""

    size_bytes: int
    sha256: str

    def read(self, configuration: bytes, start: int, length: int) -> bytes:
        """The bytes from `start`. Raises MediumChanged unless all of them are there."""
        ...


class PlainFile:
    """An open file that is served as it is: the image of a firmware. Reads are safe from several threads."""

    def __init__(self, file: BinaryIO, sha256: str) -> None:
        self._file = file
        self.size_bytes = os.fstat(file.fileno()).st_size
        self.sha256 = sha256

    def read(self, configuration: bytes, start: int, length: int) -> bytes:
        """The bytes from `start`; there is no configuration. Raises MediumChanged unless all of them are there."""
        try:
            data = os.pread(self._file.fileno(), length, start)
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise MediumChanged(f"the image cannot be read: {error}") from error
        if len(data) != length:
            raise MediumChanged(f"the image ends at byte {start + len(data)} of {self.size_bytes}")
        return data


class CommonMedium:
    """An open medium. A file that is replaced or deleted is served on as it was; one that is truncated raises MediumChanged.

    Reads are safe from several threads.
    """

    def __init__(self, path: Path) -> None:
        """Raises MediumUnusable, also if the file does not have exactly one placeholder."""
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise MediumUnusable(f"{path}: {error.strerror}") from error
        try:
            self.size_bytes = os.fstat(self._file).st_size
            self._configuration_at, content_sha256 = _scan(self._file)
        except (OSError, ValueError) as error:
            os.close(self._file)
            raise MediumUnusable(f"{path} is no deploy medium: {error}") from error
        self.sha256 = content_sha256

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a read after that raises MediumChanged."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def read(self, configuration: bytes, start: int, length: int) -> bytes:
        """The bytes of the machine's own medium from `start`. Raises MediumChanged unless all of them are there."""
        try:
            data = bytearray(os.pread(self._file, length, start))
        except OSError as error:
            raise MediumChanged(f"the medium cannot be read: {error.strerror}") from error
        if len(data) != length:
            raise MediumChanged(f"the medium ends at byte {start + len(data)} of {self.size_bytes}")
        first = max(start, self._configuration_at)
        last = min(start + length, self._configuration_at + CONFIGURATION_BYTES)
        if first < last:
            data[first - start : last - start] = configuration[
                first - self._configuration_at : last - self._configuration_at
            ]
        return bytes(data)


def _scan(file: int) -> tuple[int, str]:
    """Where the configuration is, and the SHA-256 of all. Raises ValueError."""
    with mmap.mmap(file, 0, prot=mmap.PROT_READ) as content:
        at = content.find(PLACEHOLDER)
        if at < 0:
            raise ValueError("it has no place for a configuration")
        if content.find(PLACEHOLDER, at + 1) >= 0:
            raise ValueError("it has more than one place for a configuration")
        if at % _SECTOR_BYTES:
            raise ValueError("the place of its configuration does not begin with a sector")
        return at, hashlib.sha256(content).hexdigest()
