"""`berth archive run` as a process that dies at a crash point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from berth.cli.deployment.archive.crash_points import CrashPoint
from tests.berth.commands import environment
from tests.support.waiting import WAIT_SECONDS_MAX
from tests.testbuild.killing import REACHED

ROOT = Path(__file__).parents[2]


def killed_run(url: str, archive: str, point: CrashPoint, **more: str) -> None:
    """Run the command and require that it dies at the point."""
    settings = environment(BERTH_DATABASE_URL=url, BERTH_CRASH_AT=f"{point}:1", PYTHONPATH=os.fspath(ROOT), **more)
    command = [
        sys.executable,
        "-m",
        "tests.testbuild",
        "berth.cli",
        "archive",
        "run",
        "--to",
        archive,
        "--days",
        "1",
    ]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, (done.returncode, done.stderr)
    assert REACHED.format(f"{point}:1") in done.stderr
