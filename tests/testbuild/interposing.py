"""A wrong wall clock and a slow fsync for one process, changed while it runs, by a library that is preloaded into it.

The library reads two numbers of a file that it maps. Only a test sets LD_PRELOAD and TESTBUILD_CONTROL_FILE, so no process of a
deployment can be reached. It works for programs that call the C library: Python and PostgreSQL, not those in Go.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("interposed.c")
CONTROL = struct.Struct("=qq")
"""Offset of the wall clock in seconds; delay of each fsync and fdatasync in milliseconds."""


def can_interpose() -> bool:
    """Whether a C compiler is installed."""
    return shutil.which("cc") is not None


def build_library(directory: Path) -> Path:
    """The library, which every user may read. Asserts that a C compiler is installed."""
    assert can_interpose(), "no C compiler (cc) is installed: without one no clock can be made wrong and no fsync slow"
    library = directory / "interposed.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    library.chmod(0o755)
    return library


class Interposed:
    """The clock and the disk of one process and of what it starts; right and fast at first."""

    def __init__(self, library: Path, control_file: Path) -> None:
        self._library = library
        self._file = control_file
        self.clock_offset_seconds = 0
        self._fsync_seconds = 0.0
        control_file.touch()
        control_file.chmod(0o644)
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """What the process is to be started with."""
        return {"LD_PRELOAD": str(self._library), "TESTBUILD_CONTROL_FILE": str(self._file)}

    def set_clock(self, offset_seconds: int) -> None:
        """Move the wall clock from now on; the monotonic clock goes on."""
        self.clock_offset_seconds = offset_seconds
        self._write()

    def set_fsync(self, seconds: float) -> None:
        """Delay each fsync from now on."""
        self._fsync_seconds = seconds
        self._write()

    def _write(self) -> None:
        # In place: the file is mapped.
        descriptor = os.open(self._file, os.O_WRONLY)
        try:
            os.pwrite(descriptor, CONTROL.pack(self.clock_offset_seconds, round(self._fsync_seconds * 1000)), 0)
        finally:
            os.close(descriptor)
