"""Parts of a guest's console log."""

from __future__ import annotations

import os
from pathlib import Path

from node_agent.drivers.contract import ConsoleText


def read_log(path: Path, offset: int, bytes_max: int) -> ConsoleText:
    """A part of a log file, at most `bytes_max`; a negative offset counts from its end. Raises OSError."""
    with path.open("rb") as log_file:
        size = log_file.seek(0, os.SEEK_END)
        begin = min(size, offset) if offset >= 0 else max(0, size + offset)
        log_file.seek(begin)
        return ConsoleText(begin, log_file.read(bytes_max))
