"""PostgreSQL servers that run without being a child of this process: found by their data directories, started and ended."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from berth.local.leftovers import left_after
from berth.local.servers import LocalPostgres, ServerProblem
from berth.local.system_users import run_as

START_SECONDS_TOLERANCE = 3.0
STOP_SECONDS_MAX = 20.0
RECOVERY_SECONDS_MAX = 600
PRIMARY_STATES = ("in production", "shut down", "shutting down", "in crash recovery")
"""What `pg_controldata` says of a server that ran as a primary last."""


@dataclass(frozen=True)
class Control:
    """What a data directory says about its server's last run."""

    was_primary: bool
    timeline: int


def postmaster_of(data: Path) -> psutil.Process | None:
    """The running server of a data directory; None if there is none, or if its pid now belongs to another process."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        process = psutil.Process(int(lines[0]))
        close = abs(process.create_time() - int(lines[2])) <= START_SECONDS_TOLERANCE
        return process if close and process.status() != psutil.STATUS_ZOMBIE else None
    except (OSError, ValueError, IndexError, psutil.Error):
        return None


def end_postmasters(data_directories: Sequence[Path]) -> None:
    """Stop the servers of these directories, first those that run as primary; what does not stop in 20 s is killed.

    A primary that stops first sends its last record to the standbys, so that all end at the same position.
    """
    running = [(data, found) for data in data_directories if (found := postmaster_of(data)) is not None]
    primaries = [found for data, found in running if not (data / "standby.signal").exists()]
    standbys = [found for _, found in running if found not in primaries]
    for servers in (primaries, standbys):
        _end(servers)


def kill_postmaster(data: Path) -> None:
    """End the server of a directory and each of its processes at once, as the loss of the machine would."""
    found = postmaster_of(data)
    if found is not None:
        _kill(found)


def _end(servers: list[psutil.Process]) -> None:
    for server in servers:
        # A frozen server takes no other signal.
        for member in family_of(server):
            with suppress(psutil.NoSuchProcess):
                member.resume()
        with suppress(psutil.NoSuchProcess):
            server.send_signal(signal.SIGINT)
    for server in left_after(STOP_SECONDS_MAX, servers):
        _kill(server)


def _kill(server: psutil.Process) -> None:
    family = family_of(server)
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    left_after(STOP_SECONDS_MAX, family)


def family_of(server: psutil.Process) -> list[psutil.Process]:
    """A server and its processes; each backend leads its own process group, so a signal to the group reaches one alone."""
    try:
        return [server, *server.children(recursive=True)]
    except psutil.NoSuchProcess:
        return [server]


def control_of(data: Path) -> Control | None:
    """What the data directory says; None if it holds no server."""
    command = [LocalPostgres.program("pg_controldata"), "-D", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode != 0:
        return None
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in done.stdout.splitlines())}
    # The control file names the new timeline only some time after a promotion; its history file is there before.
    timelines = [int(path.stem, 16) for path in (data / "pg_wal").glob("*.history")]
    timelines.append(int(fields["Latest checkpoint's TimeLineID"]))
    return Control(fields["Database cluster state"] in PRIMARY_STATES, max(timelines))


def last_primary(data_directories: Sequence[Path]) -> Path | None:
    """The directory of the only server that ran as primary on the newest timeline; None if that is not certain.

    It has every acknowledged commit. Started as primary again it stays on its timeline, where an election would begin a new one.
    """
    controls = {data: found for data in data_directories if (found := control_of(data)) is not None}
    newest = max((control.timeline for control in controls.values()), default=0)
    leading = [data for data, control in controls.items() if control.was_primary and control.timeline == newest]
    return leading[0] if len(leading) == 1 and not (leading[0] / "standby.signal").exists() else None


def start_postmaster(data: Path, log: Path, user: str | None) -> None:
    """Start a server with the settings of its files, detached from this process. Raises `ServerProblem`."""
    command = [LocalPostgres.program("pg_ctl"), "-D", str(data), "-w", "-t", str(RECOVERY_SECONDS_MAX), "start"]
    with log.open("ab") as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, cwd="/", **run_as(user)
        )
    if done.returncode != 0:
        raise ServerProblem(
            f"PostgreSQL of {data} did not start; see {log}, or move that directory away: the other members go on without it"
        )
