"""PostgreSQL's own programs as children that end with this process, and what their messages mean."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from berth.cli.deployment.backup.problems import BackupProblem
from berth.local.servers import LocalPostgres, ServerProblem

CONNECT_SECONDS = 10
# Becomes the program, after asking the kernel to kill it when this process ends: an orphan would write on into the directory
# that the next run clears. `preexec_fn` would do the same, and may deadlock beside threads. The user changes here because
# another one may not be allowed to execute this Python.
_LAUNCHER = """
import ctypes, os, sys
parent, user, group = map(int, sys.argv[1:4])
if user:
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
try:
    ctypes.CDLL(None).prctl(1, 9)
except AttributeError:
    pass
if os.getppid() == parent:
    os.execv(sys.argv[4], sys.argv[4:])
"""
_MEANINGS = (
    (re.compile(r"No space left on device|Disk quota exceeded|disk full", re.I), "backup_disk_full"),
    (
        re.compile(r"password authentication failed|no pg_hba.conf entry|no password supplied|permission denied to start WAL"
                   r"|must be superuser or replication|role \"[^\"]*\" does not exist|only roles with the REPLICATION", re.I),
        "backup_not_permitted",
    ),
    (
        re.compile(r"could not connect|connection to server|server closed the connection|could not translate host|terminating"
                   r" connection|could not receive data|lost connection|replication stream", re.I),
        "backup_server_unreachable",
    ),
)  # fmt: skip
_ADVICE = {
    "backup_disk_full": "free space, or let BERTH_BACKUP_KEEP_COUNT and BERTH_BACKUP_KEEP_DAYS keep less",
    "backup_not_permitted": "the role needs LOGIN and REPLICATION, its password, and a line for `replication` in pg_hba.conf",
    "backup_server_unreachable": "check BERTH_BACKUP_DATABASE_URL and the server",
    "backup_failed": "the output of the program says more",
}


def program(name: str, directory: Path | None) -> str:
    """Path of one of PostgreSQL's programs: in `directory`, else of the wheel, else on PATH. Raises `BackupProblem`."""
    if directory is not None:
        found = str(directory / name)
    else:
        try:
            found = LocalPostgres.program(name)
        except ServerProblem:
            found = shutil.which(name) or ""
    if not found or not os.access(found, os.X_OK):
        raise BackupProblem(
            "backup_programs_missing",
            f"{name} of PostgreSQL 18 is not here; name the directory of its programs in BERTH_BACKUP_PROGRAMS_DIR",
        )
    return found


def plain_environment() -> dict[str, str]:
    """The environment for PostgreSQL's programs: without Berth's settings, which hold passwords, and those of other servers."""
    passed = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "PATRONI_", "PG"))}
    return {**passed, "LC_ALL": "C"}


def without_password(url: str) -> tuple[str, dict[str, str]]:
    """Parameters for the command line, which every user of the machine can read, and the environment with the password."""
    parameters = dict(conninfo_to_dict(url))
    password = parameters.pop("password", None)
    parameters.pop("dbname", None)  # a physical replication connection has none
    for name, value in (("connect_timeout", CONNECT_SECONDS), ("keepalives_idle", 10), ("keepalives_interval", 5),
                        ("keepalives_count", 3), ("tcp_user_timeout", 30_000)):  # fmt: skip
        parameters.setdefault(name, value)
    environment = plain_environment()
    if password is not None:
        environment["PGPASSWORD"] = str(password)
    return make_conninfo("", **parameters), environment


def start(
    command: Sequence[str],
    environment: dict[str, str] | None = None,
    *,
    error: IO[bytes] | int,
    account: tuple[int, int] = (0, 0),
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start a program that the kernel kills when this process ends, however that ends. Call it from the main thread.

    `account`: ids of a user and its group to run it as, where this process is root; 0: as this process.
    """
    launched = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *map(str, (os.getpid(), *account)), *command]
    return subprocess.Popen(
        launched, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=error, **options
    )


def run(
    command: Sequence[str],
    environment: dict[str, str],
    what: str,
    *,
    holding: int,
    code: str | None = None,
    watch: Callable[[], None] | None = None,
    watch_seconds: float = 15.0,
) -> None:
    """Run a program to its end, which shares the lock `holding`. Raises `BackupProblem`, `code` overrides what it says.

    `watch` is called every `watch_seconds`; what it raises ends the program.
    """
    process = start(command, environment, error=subprocess.PIPE, pass_fds=(holding,))
    try:
        while True:
            try:
                _, error = process.communicate(timeout=None if watch is None else watch_seconds)
                break
            except subprocess.TimeoutExpired:
                assert watch is not None
                watch()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode != 0:
        raise problem_of(error.decode(errors="replace"), what, code)


def problem_of(output: str, what: str, code: str | None = None) -> BackupProblem:
    """The problem that a program's messages describe."""
    lines = [line for line in output.strip().splitlines() if not line.startswith("pg_basebackup: removing")]
    found = code or next((meaning for pattern, meaning in _MEANINGS if pattern.search(output)), "backup_failed")
    said = " | ".join(lines[-3:]) or "it said nothing"
    advice = _ADVICE.get(found)
    return BackupProblem(found, f"{what} failed: {said}" + (f"; {advice}" if advice else ""))
