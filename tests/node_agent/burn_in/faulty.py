"""Hardware with seeded faults, and a trial of it: `python -m tests.node_agent.burn_in.faulty` in place of the agent's module.

The product has no switch for them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from node_agent.burn_in import trial
from node_agent.burn_in.cpu import compute
from node_agent.burn_in.disk import Scratch
from node_agent.burn_in.trial import Hardware

FLIPPED = 5_000_017


class Flipping:
    """Memory with a bit that reads as 1 although it was written 0."""

    def __init__(self, size: int) -> None:
        self._content = bytearray(size)

    def __setitem__(self, part: slice, content: bytes) -> None:
        self._content[part] = content

    def __getitem__(self, part: slice) -> bytes:
        read = bytearray(self._content[part])
        if part.start <= FLIPPED < part.stop:
            read[FLIPPED - part.start] |= 0x10
        return bytes(read)


class Aliasing:
    """Memory with an address line that is stuck: the second half is the first."""

    def __init__(self, size: int) -> None:
        self._content = bytearray(size // 2)

    def __setitem__(self, part: slice, content: bytes) -> None:
        self._content[self._moved(part)] = content

    def __getitem__(self, part: slice) -> bytes:
        return bytes(self._content[self._moved(part)])

    def _moved(self, part: slice) -> slice:
        first = part.start % len(self._content)
        return slice(first, first + part.stop - part.start)


class Corrupted(Scratch):
    """A file in which one bit changes between write and read."""

    def sync(self) -> None:
        byte = os.pread(self.descriptor, 1, 1_500_000)
        os.pwrite(self.descriptor, bytes([byte[0] ^ 0x04]), 1_500_000)
        super().sync()


class Shortened(Scratch):
    """A file that has lost its end."""

    def sync(self) -> None:
        os.ftruncate(self.descriptor, os.fstat(self.descriptor).st_size - 4096)
        super().sync()


class Unreadable(Scratch):
    """A file on a disk that cannot be synced."""

    def sync(self) -> None:
        raise OSError(5, "Input/output error")


class Full(Scratch):
    """A file on a disk without room."""

    def write(self, content: bytes) -> None:
        raise OSError(28, "No space left on device")


def wrong_on_the_last_core() -> str:
    """Another result on one core, the right one on the others."""
    last = max(range(os.cpu_count() or 1), key=lambda core: core if core in ALLOWED else -1)
    return "wrong" if os.sched_getaffinity(0) == {last} else compute()


ALLOWED = os.sched_getaffinity(0)
FAULTS: dict[str, Hardware] = {
    "memory flips": Hardware(allocate=Flipping),
    "disk corrupts": Hardware(scratch=Corrupted),
    "cpu errs": Hardware(computation=wrong_on_the_last_core),
}


NOTING = {"memory": "allocate", "disk": "scratch", "cpu": "computation"}


def _noting(file: Path, part: str) -> Callable[..., Any]:
    """What a sound part has in the place of `NOTING`, which first writes its priority into a file."""
    sound = getattr(Hardware(), NOTING[part])

    def noted(*arguments: Any) -> Any:
        file.write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))
        return sound(*arguments)

    return noted


def main(part: str, directory: Path) -> None:
    """Run the trial on the hardware that a file in the directory names."""
    fault = (directory / "fault").read_text() if (directory / "fault").exists() else ""
    if fault == "no fault, priorities":
        noting: dict[str, Any] = {NOTING[part]: _noting(directory / f"priority-{part}", part)}
        trial.main(sys.argv[1:], replace(Hardware(), **noting))
        return
    if fault == f"{part} hangs":
        signal.pause()
    if fault.startswith(f"{part} gets "):
        os.kill(os.getpid(), signal.Signals[fault.split()[-1]])
    trial.main(sys.argv[1:], FAULTS.get(fault, replace(Hardware())))


if __name__ == "__main__":
    main(sys.argv[2], Path(sys.argv[4]))
