"""The terminal of a person at a console: raw while the session lasts, and as before in every ending but SIGKILL."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ESCAPE = b"\x1d"
"""Ctrl-], which telnet(1) and `virsh console` use as well."""
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal ends the program; its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Pass every key on as it is typed, Ctrl-C too. Raises `Ended` for a signal that ends the program, after the restoration."""
    before = termios.tcgetattr(descriptor)
    handlers = {number: signal.signal(number, _end) for number in ENDING_SIGNALS}
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def note(text: str) -> None:
    """A line on standard error, also while the terminal is raw."""
    end = b"\r\n" if os.isatty(sys.stderr.fileno()) else b"\n"
    os.write(sys.stderr.fileno(), b"berth: " + text.encode() + end)


def until_escape(data: bytes) -> tuple[bytes, bool]:
    """What was typed before the escape key, and whether it was typed."""
    before, escape, _ = data.partition(ESCAPE)
    return before, bool(escape)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise Ended(number)
