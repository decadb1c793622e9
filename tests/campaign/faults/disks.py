"""A small file system under a server's data directory, which can be filled and given room again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SIZE_BYTES = 1 << 30


class SmallDisk:
    """A tmpfs. It is full when its size is what it holds, so nothing has to be written to fill it."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self._directory = directory
        self._size_bytes = size_bytes

    @classmethod
    def mount(cls, directory: Path, size_bytes: int = SIZE_BYTES) -> SmallDisk | None:
        """The file system at `directory`, which is made; None if this process may not mount one."""
        directory.mkdir(parents=True, exist_ok=True)
        options = f"size={size_bytes},mode=0700"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
        mounted = shutil.which("mount") is not None and subprocess.run(command, capture_output=True).returncode == 0
        return cls(directory, size_bytes) if mounted else None

    @staticmethod
    def forget(directory: Path) -> None:
        """Unmount what a killed campaign left; nothing if there is none."""
        if os.path.ismount(directory):
            subprocess.run(["umount", "--lazy", str(directory)], check=True)

    def fill(self) -> None:
        """Leave no room."""
        found = os.statvfs(self._directory)
        self._resize((found.f_blocks - found.f_bfree) * found.f_frsize)

    def give_room(self) -> None:
        """Leave as much room as at first."""
        self._resize(self._size_bytes)

    def leave(self) -> None:
        """Unmount, and leave the files where they were. Nothing may run on them any more."""
        beside = self._directory.with_name(f"{self._directory.name}-kept")
        shutil.rmtree(beside, ignore_errors=True)
        subprocess.run(["cp", "--archive", str(self._directory), str(beside)], check=True)
        subprocess.run(["umount", "--lazy", str(self._directory)], check=True)
        self._directory.rmdir()
        beside.rename(self._directory)

    def _resize(self, size_bytes: int) -> None:
        command = ["mount", "-o", f"remount,size={size_bytes}", str(self._directory)]
        subprocess.run(command, check=True, capture_output=True)
