"""A forked process is the process of the command line: same answer, streams, directory, session, signals and status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.forked.starting import CommandLine, Process
from tests.support.waiting import wait_for

UNREACHABLE = {"BERTH_DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/none", "BERTH_NATS_URL": "nats://127.0.0.1:1"}
STARTS = [
    (["orchestrator", "--listen", "nothing"], 2, "invalid choice: 'nothing'"),
    (["worker"], 1, "BERTH_TEMPORAL_ADDRESS: Field required"),
    (["outbox_relay"], 1, "BERTH_NATS_URL: Field required"),
    (["node_agent"], 1, "BERTH_AGENT_STATE_DIR: Field required"),
    (["berth.cli", "no-such-command"], 2, "no-such-command"),
]


def ended(start: Any, command: list[str], **options: Any) -> tuple[int, str, str]:
    with start(
        [sys.executable, "-m", *command], env={"PATH": os.environ["PATH"]}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    ) as process:  # fmt: skip
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


@pytest.mark.quick("outbox_relay", "node_agent", "berth.cli no-such-command")
@pytest.mark.parametrize(("command", "status", "said"), STARTS, ids=[" ".join(command) for command, _, _ in STARTS])
def test_it_ends_as_the_command_line_does(command: list[str], status: int, said: str) -> None:
    forked = ended(subprocess.Popen, command)
    assert forked == ended(CommandLine, command)
    assert forked[0] == status
    assert said in forked[2]


def relay(log: Path, **options: Any) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "outbox_relay"], env={**os.environ, **UNREACHABLE}, stdout=output, stderr=output,
            **options,
        )  # fmt: skip


def test_it_is_a_child_of_the_test_with_what_it_was_given(tmp_path: Path) -> None:
    with relay(tmp_path / "log", start_new_session=True, cwd=tmp_path) as process:
        seen = psutil.Process(process.pid)
        assert type(process) is Process
        assert (seen.ppid(), os.getsid(process.pid), seen.cwd()) == (os.getpid(), process.pid, str(tmp_path))
        opened = {file.path for file in seen.open_files()}
        # It may be importing its module at this moment.
        assert {path for path in opened if not path.endswith((".py", ".pyc"))} == {str(tmp_path / "log")}
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    with relay(tmp_path / "log") as process:
        assert os.getsid(process.pid) == os.getsid(0)
        process.kill()


def test_it_sees_its_environment_and_signals(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = relay(log)
    wait_for(lambda: process.poll() is not None or b"starting" in log.read_bytes(), "the relay starts")
    assert b"127.0.0.1:1/none" in log.read_bytes()
    process.terminate()
    assert process.wait(60) == 0, log.read_text()


def test_a_directory_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="could not be forked"):
        relay(tmp_path / "log", cwd=tmp_path / "none")


def test_every_other_command_is_started_as_it_is(tmp_path: Path) -> None:
    assert subprocess.check_output([sys.executable, "-m", "json.tool", "--help"]).startswith(b"usage: ")
    with relay(tmp_path / "log", umask=0o77) as beyond_a_fork, relay(tmp_path / "log") as forked:
        assert psutil.Process(beyond_a_fork.pid).cmdline()[1:] == ["-m", "outbox_relay"]
        assert psutil.Process(forked.pid).cmdline()[1:4] == ["-m", "tests.forked", "outbox_relay"]
        beyond_a_fork.kill()
        forked.kill()
