"""Programs of LVM, run with a deadline, and their reports. Every problem is a `PoolError`, an OSError."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS_MAX = 60.0
"""How long one program may take; `lvremove` of a volume that is open tries for 6 s."""
ENDING_SECONDS_MAX = 5.0
UDEV = Path("/run/udev/control")
# The copies of the metadata below /etc/lvm are the administrator's: each guest would add two. Words in reports, as they are read.
CONFIG = "activation/monitoring=0 backup/backup=0 backup/archive=0 report/binary_values_as_numeric=0"
PASSED_ON = ("PATH", "DM_DISABLE_UDEV", "LVM_SYSTEM_DIR")
"""What LVM gets of the agent's environment, which has more, and secrets too."""


class PoolError(OSError):
    """LVM did not do, or did not say, what was asked. The text says which program, and why."""


class ProgramSilent(PoolError):
    """A program of LVM did not end within its time."""


class ProgramMissing(PoolError):
    """A program is not installed."""


def find_program(program: str) -> str:
    """Where the program is. Raises ProgramMissing."""
    if (path := shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")) is None:
        raise ProgramMissing(f"{program} is not installed")
    return path


def run(program: str, *arguments: str, seconds_max: float = SECONDS_MAX) -> str:
    """What the program prints. Raises PoolError with what it says, ProgramSilent after `seconds_max`."""
    path = find_program(program)
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment = {**passed_on, "LC_ALL": "C", "LVM_SUPPRESS_FD_WARNINGS": "1"}
    if not UDEV.exists():
        environment["DM_DISABLE_UDEV"] = "1"  # LVM would wait for what makes the device nodes elsewhere
    # A session apart: what ends the agent's group does not end LVM between two steps.
    process = subprocess.Popen(
        [path, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        output, said = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        # Never SIGKILL: LVM would leave devices suspended. On SIGTERM it ends where it can.
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=ENDING_SECONDS_MAX)
        raise ProgramSilent(f"{program} did not end within {seconds_max:g} s") from None
    if process.returncode != 0:
        raise PoolError(f"{program}: {_problem(said) or f'exit status {process.returncode}'}")
    return output


def report(
    program: str, *arguments: str, columns: Sequence[str], seconds_max: float = SECONDS_MAX
) -> list[dict[str, str]]:
    """The rows of a report, each with all `columns`. Sizes are bytes. Raises PoolError."""
    kind = {"lvs": "lv", "vgs": "vg", "pvs": "pv"}[program]
    options = ("--reportformat", "json", "--units", "b", "--nosuffix", "--config", CONFIG, "-o", ",".join(columns))
    return read_report(run(program, *options, *arguments, seconds_max=seconds_max), kind, columns)


def read_report(text: str, kind: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of LVM's JSON. Raises PoolError for what is not such a report, or lacks a column."""
    try:
        rows = [row for part in json.loads(text)["report"] for row in part.get(kind, ())]
        return [{column: str(row[column]) for column in columns} for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PoolError(f"the report of LVM cannot be read: {type(error).__name__}: {error}"[:300]) from error


def number(row: Mapping[str, str], column: str) -> float | None:
    """The number in a column; None where LVM says nothing, as of what is not active. Raises PoolError."""
    text = row[column]
    if text in ("", "unknown"):
        return None
    try:
        return float(text)
    except ValueError as error:
        raise PoolError(f"LVM says {column}={text[:100]}") from error


def _problem(said: str) -> str:
    lines = [
        line.strip() for line in said.splitlines() if line.strip() and "WARNING: Running as a non-root" not in line
    ]
    return "; ".join(lines)[-500:]
