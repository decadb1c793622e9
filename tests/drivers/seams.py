"""Faults at a driver's effects, from outside of it: Python's audit events show each, and the process is struck there.

An effect is a file or directory made, emptied, renamed or removed below the driver's directory, a process started, or a
connection opened. An order in a file names the phase (by its place) and the effect in it; `between` is the moment when the
phase has ended and nothing has reported it yet.

A driver whose effects are calls of a C library raises `sys.audit(EFFECT, what)` where its harness wraps them.

    {"phase": 1, "effect": 0, "strike": "kill"}        SIGKILL before the effect
    {"phase": 1, "effect": "between", "strike": "fill"}   the disk is filled, and the driver goes on

Whatever happens is written to the trace, one line an effect.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from berth.process import crash_points
from node_agent.crash_points import CrashPoint

BALLAST = ".ballast"
EFFECT = "berth.driver.effect"
BETWEEN: Literal["between"] = "between"
CHANGES = frozenset(
    {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate"}
)
MAKES = os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Strike:
    """A fault, the effect at which it happens, and the place of the effect's phase."""

    phase: int
    effect: int | Literal["between"]
    strike: Literal["kill", "fill"]

    def write(self, file: Path) -> None:
        aside = file.with_suffix(".new")
        aside.write_text(json.dumps(self.__dict__))
        aside.rename(file)


class Seam:
    """Follows one process's tasks through their phases and effects."""

    def __init__(self, directory: Path, order_file: Path, trace_file: Path, ignored_ports: set[int]) -> None:
        self._directory = str(directory)
        self._order_file = order_file
        self._trace = os.open(trace_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._ignored_ports = ignored_ports
        self._active = self._busy = False
        self._phase = self._effect = 0
        self._lock = threading.RLock()

    def install(self) -> None:
        """From now on see every effect of this process."""
        crash_points.install(self._on_point)
        sys.addaudithook(self._on_audit)

    def _on_point(self, label: str) -> None:
        if label == CrashPoint.EFFECT_BEFORE_BEGINNING:
            self._phase = self._effect = 0
            self._active = True
        elif label == CrashPoint.EFFECT_AT_PHASE and self._active:
            self._reached(BETWEEN, "the phase has ended")
            self._phase, self._effect = self._phase + 1, 0
        elif label == CrashPoint.EFFECT_AFTER_END:
            self._active = False

    def _on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active or self._busy:
            return
        with self._lock:
            what = self._effect_of(event, arguments)
            if what is not None:
                self._reached(self._effect, what)
                self._effect += 1

    def _effect_of(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        if event == EFFECT:
            return str(arguments[0])
        if event == "subprocess.Popen":
            return f"starts {arguments[1]}"
        if event == "socket.connect":
            address = arguments[1]
            ours = isinstance(address, tuple) and address[1] in self._ignored_ports
            return None if ours else f"connects to {address}"
        if event == "open":
            path, mode, flags = arguments
            makes = flags & MAKES or (isinstance(mode, str) and set(mode) & set("wax"))
            return f"opens {path}" if makes and self._is_below(path) else None
        if event == "os.truncate" and isinstance(arguments[0], int):
            name = str(Path(f"/proc/self/fd/{arguments[0]}").readlink())
            return f"{event} {name}" if self._is_below(name) else None
        if event in CHANGES:
            below = any(self._is_below(argument) for argument in arguments) or arguments[-1] not in (-1, None)
            return f"{event} {arguments[0]}" if below else None
        return None

    def _is_below(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._directory)

    def _reached(self, effect: int | str, what: str) -> None:
        self._busy = True
        try:
            os.write(self._trace, json.dumps([self._phase, effect, what]).encode() + b"\n")
            with suppress(FileNotFoundError):
                order = Strike(**json.loads(self._order_file.read_text()))
                if (order.phase, order.effect) == (self._phase, effect):
                    self._strike(order)
        finally:
            self._busy = False

    def _strike(self, order: Strike) -> None:
        self._order_file.unlink()
        if order.strike == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        fill(Path(self._directory))


def fill(directory: Path) -> None:
    """Use up the file system of `directory`, to the last block."""
    descriptor = os.open(directory / BALLAST, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    os.write(descriptor, bytes(size))
    finally:
        os.close(descriptor)
