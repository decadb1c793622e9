"""What a killed `berth up` left running, and how it ends.

Every child is recorded with its pid, start time and command line before anything waits for it. The next start ends
those that are still there, and only those: a pid that now belongs to another process has another start time.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass

import psutil

from berth.local.state import StateDirectory
from berth.process.json_objects import JsonObject

RECORDS = "processes.json"
START_SECONDS_TOLERANCE = 2.0
STOP_SECONDS_MAX = 15.0


@dataclass(frozen=True)
class Record:
    """One child as it was when it started. `stop_signal` ends it in order."""

    name: str
    pid: int
    started_at: float
    command: list[str]
    stop_signal: int


def record_of(name: str, pid: int, stop_signal: signal.Signals) -> Record:
    """The record of a child that just started."""
    try:
        process = psutil.Process(pid)
        return Record(name, pid, process.create_time(), process.cmdline(), int(stop_signal))
    except psutil.Error:
        # It has ended already; the caller that waits for it reports that, and no record is needed.
        return Record(name, pid, 0.0, [], int(stop_signal))


class Records:
    """The children that run now, kept in the state directory."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self._records: list[Record] = [Record(**entry) for entry in state.read(RECORDS).get("processes", [])]

    def add(self, record: Record) -> None:
        """Remember a child, in the place of the one of that name that it follows."""
        self._records = [known for known in self._records if known.name != record.name]
        self._records.append(record)
        self._write()

    def clear(self) -> None:
        """Forget all: nothing runs any more."""
        if self._records:
            self._records.clear()
            self._write()

    def alive(self) -> list[tuple[Record, psutil.Process]]:
        """The recorded children that still run, newest first."""
        found = []
        for record in reversed(self._records):
            process = _same(record)
            if process is not None:
                found.append((record, process))
        return found

    def end_leftovers(self) -> list[str]:
        """End what an earlier stack left behind, newest first, in order and then by force; answers the names."""
        ended = []
        for record, process in self.alive():
            _end(record, process)
            ended.append(record.name)
        self.clear()
        return ended

    def _write(self) -> None:
        content: JsonObject = {"processes": [asdict(record) for record in self._records]}
        self._state.write(RECORDS, content)


def _same(record: Record) -> psutil.Process | None:
    """The process of the record if it is still that one.

    The command line may change when a program replaces itself, and the start time is derived from the clock, so pid
    and start time must agree within two seconds; a zombie counts as gone.
    """
    try:
        process = psutil.Process(record.pid)
        close = abs(process.create_time() - record.started_at) <= START_SECONDS_TOLERANCE
        if not close or process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process
    except psutil.Error:
        return None


def _end(record: Record, process: psutil.Process) -> None:
    try:
        family = [process, *process.children(recursive=True)]
        process.send_signal(record.stop_signal)
    except psutil.NoSuchProcess:
        return
    for member in left_after(STOP_SECONDS_MAX, family):
        with suppress(psutil.NoSuchProcess):
            member.kill()
    left_after(STOP_SECONDS_MAX, family)


def left_after(seconds: float, processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run when all have ended or the time is up.

    They are not our children, so another process collects their status, perhaps late and in a container perhaps never:
    a zombie has ended.
    """
    deadline = time.monotonic() + seconds
    while (left := [process for process in processes if _runs(process)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
