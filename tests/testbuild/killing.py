"""How a process dies at a crash point: by SIGKILL, after a line on standard error that says where."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable

REACHED = "crash point reached: {label}:{number}"
"""The line written by the dying process; with the exit status it proves where the process died."""


def kill_at(label: str, number: int) -> Callable[[str], None]:
    """What to install so that the process dies when `label` is reached for the `number`-th time, in whatever thread."""
    times = itertools.count(1)

    def on_reached(point: str) -> None:
        if point == label and next(times) == number:
            os.write(2, (REACHED.format(label=label, number=number) + "\n").encode())
            os.kill(os.getpid(), signal.SIGKILL)

    return on_reached
