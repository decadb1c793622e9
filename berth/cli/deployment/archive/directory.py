"""An archive in a directory: files appear whole or not at all, and are on the disk before their name is returned."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.process.durable_directories import sync_directory


class Destination(Protocol):
    """Where segments and manifests are stored, by names with one slash."""

    @property
    def name(self) -> str:
        """What an operator calls it."""

    def names(self) -> list[str]:
        """Every stored name, in order. Raises `ArchiveProblem`."""

    def read(self, name: str) -> bytes:
        """The content. Raises `ArchiveProblem`."""

    def write(self, name: str, content: bytes) -> None:
        """Store it durably under a new name, read it back and compare. Raises `ArchiveProblem`; nothing relies on it then.

        A name is written once: other content under it stays, and the write is refused. The same content is no problem: an
        earlier try of this write, or an interrupted run, has stored it.
        """


class Directory:
    """A directory of the machine that runs the command."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """The absolute path."""
        return str(self._path.absolute())

    def names(self) -> list[str]:
        """Every file, without the unfinished ones of an interrupted run."""
        found = (file for file in self._path.glob("*/*") if file.is_file() and not file.name.startswith("."))
        return sorted(str(file.relative_to(self._path)) for file in found)

    def read(self, name: str) -> bytes:
        """The file's content."""
        try:
            return (self._path / name).read_bytes()
        except OSError as error:
            raise ArchiveProblem(
                "archive_unreadable", f"{self._path / name} cannot be read: {error.strerror}"
            ) from error

    def write(self, name: str, content: bytes) -> None:
        """Write aside, sync, link to the name unless it exists, sync the directories, and read it back."""
        path = self._path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path, content)
            for directory in (path.parent, self._path):
                sync_directory(directory)
            stored = path.read_bytes()
        except OSError as error:
            raise ArchiveProblem(
                "archive_not_written", f"{path} cannot be written: {error.strerror}; nothing was deleted for it"
            ) from error
        if stored != content:
            raise written_before(str(path))


def written_before(name: str) -> ArchiveProblem:
    """The refusal of a write to a name that has other content."""
    return ArchiveProblem(
        "archive_overtaken",
        f"{name} exists with other content: another run wrote it, or the storage is damaged; nothing was deleted for this write;"
        " run `berth archive run` again",
    )


def _create(path: Path, content: bytes) -> None:
    """Create the file whole, unless it exists. A rename would replace what another run has written."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with aside.open("xb") as file:
            aside.chmod(0o600)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)
