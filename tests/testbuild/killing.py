"""How a process dies at a crash point: by SIGKILL, after a line on standard error that says where."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

REACHED = "crash point reached: {}"
"""The line written by the dying process; with the exit status it proves where the process died."""


def kill_at(wanted: Callable[[], str | None]) -> Callable[[str], None]:
    """What to install so that the process dies when the wanted `<label>:<n>` is reached, in whatever thread.

    It is asked for whenever a point is reached, and counts from when it was first wanted.
    """
    reached: Counter[str] = Counter()

    def on_reached(point: str) -> None:
        crash_at = wanted()
        label, _, number = (crash_at or "").rpartition(":")
        if crash_at is None or point != label:
            return
        reached[crash_at] += 1
        if reached[crash_at] == int(number):
            os.write(2, (REACHED.format(crash_at) + "\n").encode())
            os.kill(os.getpid(), signal.SIGKILL)

    return on_reached


def written_in(file: Path) -> Callable[[], str | None]:
    """What the file says now; None while there is none."""

    def read() -> str | None:
        try:
            return file.read_text().strip()
        except FileNotFoundError:
            return None

    return read
