"""`berth backup` as a process that dies at a crash point."""

from __future__ import annotations

import signal
import subprocess
import sys

from berth.cli.deployment.backup.crash_points import CrashPoint
from tests.backup.stage import ROOT, Stage
from tests.support.waiting import WAIT_SECONDS_MAX
from tests.testbuild.killing import REACHED


def killed(stage: Stage, point: CrashPoint, *arguments: str, **settings: str) -> None:
    """Run a command and require that it dies at the point."""
    command = [sys.executable, "-m", "tests.testbuild", "berth.cli", "backup", *arguments]
    environment = stage.variables(BERTH_CRASH_AT=f"{point}:1", **settings)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, (done.returncode, done.stdout, done.stderr)
    assert REACHED.format(f"{point}:1") in done.stderr
