"""A process has the clock and the disk that its test sets, while it runs, and the processes of the product do not ask for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.testbuild.interposing import Interposed, build_library, can_interpose

ROOT = Path(__file__).parents[2]
# Answers each line with its wall clock, its monotonic clock, and how long an fsync took.
PROGRAM = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for _ in sys.stdin:
    began = time.monotonic()
    os.fsync(file)
    print(time.time(), time.monotonic(), time.monotonic() - began, flush=True)
"""

pytestmark = pytest.mark.skipif(not can_interpose(), reason="no C compiler is installed")


class Answering:
    """A process under the library."""

    def __init__(self, process: subprocess.Popen[str], interposed: Interposed) -> None:
        self._process = process
        self.interposed = interposed

    def look(self) -> tuple[float, float, float]:
        """Wall clock, monotonic clock, seconds of an fsync."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        wall, monotonic, seconds = map(float, self._process.stdout.readline().split())
        return wall, monotonic, seconds


@contextmanager
def answering(directory: Path) -> Iterator[Answering]:
    """Such a process."""
    interposed = Interposed(build_library(directory), directory / "control")
    command = [sys.executable, "-c", PROGRAM, str(directory / "file")]
    environment = {**os.environ, **interposed.environment}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Answering(process, interposed)
        process.kill()


@pytest.mark.parametrize("offset_seconds", [3600, -3600])
def test_a_clock_steps_while_the_process_runs(tmp_path: Path, offset_seconds: int) -> None:
    with answering(tmp_path) as process:
        before, began, _ = process.look()
        process.interposed.set_clock(offset_seconds)
        after, went_on, _ = process.look()
        assert after - before == pytest.approx(offset_seconds + went_on - began, abs=1)
        assert 0 <= went_on - began < 60, "the monotonic clock does not step"
        process.interposed.set_clock(0)
        again, later, _ = process.look()
        assert again - before == pytest.approx(later - began, abs=1)


def test_an_fsync_is_slow_while_the_process_runs(tmp_path: Path) -> None:
    with answering(tmp_path) as process:
        process.interposed.set_fsync(0.3)
        assert process.look()[2] >= 0.3
        process.interposed.set_fsync(0.0)
        assert min(process.look()[2] for _ in range(20)) < 0.3


def test_the_product_never_asks_for_it() -> None:
    for package in ("berth", "orchestrator", "worker", "outbox_relay", "node_agent", "migrations"):
        for path in (ROOT / package).rglob("*.py"):
            assert "TESTBUILD" not in path.read_text(), path
