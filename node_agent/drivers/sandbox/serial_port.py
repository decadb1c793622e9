"""The serial console of a sandbox guest: a pseudo-terminal of the agent that repeats each line.

A sandbox guest has no serial port. This one behaves as a terminal: its line discipline echoes what is typed, each line is
answered, and `print N` answers with N bytes, so that floods can be tried.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

LINE_BYTES_MAX = 4096
PRINT_BYTES_MAX = 2**30
CHECK_SECONDS = 0.5
_PRINT = re.compile(rb"print (\d{1,10})")
_PATTERN = b"0123456789abcdef" * 256


class _Terminal:
    """Answers lines on the other side of a pseudo-terminal."""

    def __init__(self, descriptor: int, banner: bytes, is_alive: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._is_alive = is_alive
        self._line = b""
        self._waiting = banner
        self._to_print = 0
        self._open = True
        self._loop = asyncio.get_running_loop()
        self._check: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)
        self._write()
        self._require_alive()

    def close(self) -> None:
        """Close this side, which ends the other."""
        if self._open:
            self._open = False
            if self._check is not None:
                self._check.cancel()
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)

    def _require_alive(self) -> None:
        if self._is_alive():
            self._check = self._loop.call_later(CHECK_SECONDS, self._require_alive)
        else:
            self.close()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._line = (self._line + data)[-LINE_BYTES_MAX:]
        while (end := self._line.find(b"\n")) >= 0:
            line, self._line = self._line[:end], self._line[end + 1 :]
            asked = _PRINT.fullmatch(line.strip())
            if asked:
                self._to_print = min(int(asked[1]), PRINT_BYTES_MAX)
            else:
                self._waiting = (self._waiting + line + b"\n")[-LINE_BYTES_MAX:]
        self._write()

    def _write(self) -> None:
        try:
            while self._waiting or self._to_print:
                if self._waiting:
                    self._waiting = self._waiting[os.write(self._descriptor, self._waiting) :]
                else:
                    self._to_print -= os.write(self._descriptor, _PATTERN[: self._to_print])
            self._loop.remove_writer(self._descriptor)
        except BlockingIOError:
            self._loop.add_writer(self._descriptor, self._write)
        except OSError:
            self.close()


@asynccontextmanager
async def serial_port(allocation_id: UUID, is_alive: Callable[[], bool]) -> AsyncIterator[int]:
    """The side of the terminal that a person uses; it ends when the guest does. Raises LookupError if no guest runs."""
    if not is_alive():
        raise LookupError(f"no guest runs for allocation {allocation_id}")
    ours, theirs = os.openpty()
    terminal = _Terminal(theirs, f"sandbox console of {allocation_id}\n".encode(), is_alive)
    try:
        yield ours
    finally:
        terminal.close()
        os.close(ours)
