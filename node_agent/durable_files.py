"""Atomic file replacement: after a crash a file has its old or its new content.

A new file is written aside, synced, renamed over the old one, and its directory synced (rename(2), fsync(2)).
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from berth.process.durable_directories import sync_directory
from node_agent.problems import CannotStart


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace `path` by `content`: afterwards it is on the disk; before, the old content is. Raises OSError.

    The file has `mode`, whatever the process's umask is.
    """
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def make_private_directory(path: Path) -> None:
    """Make `path` readable by its owner alone, existing or not. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)


class DirectoryOwnership:
    """An exclusive lock on a state directory, held until the process ends, however it ends (flock(2))."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "agent.lock"
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise CannotStart(f"another agent runs on {directory}; give each its own BERTH_AGENT_STATE_DIR") from error

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)
