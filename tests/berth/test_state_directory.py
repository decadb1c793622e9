"""The state directory: ports are remembered, one stack at a time, and nothing that is not a stack's is deleted."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from berth.cli.known_stack import StackProblem, read_secret, read_stack
from berth.local.leftovers import Record, Records, record_of
from berth.local.secret_files import write_secret
from berth.local.servers import free_port
from berth.local.state import PORTS_FIRST, PORTS_LAST, Ports, StateDirectory
from tests.berth.commands import environment, still_run

HOLD = """
import sys
from pathlib import Path
from berth.local.state import StateDirectory
with StateDirectory(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    """A prepared directory."""
    found = StateDirectory(tmp_path / "var")
    found.prepare()
    return found


def test_ports_are_remembered(state: StateDirectory) -> None:
    first = Ports(state)
    wished = free_port()
    chosen = {"api": first.of("api", wished), "nats": first.of("nats"), "temporal": first.of("temporal")}
    assert chosen["api"] == wished
    assert len(set(chosen.values())) == 3
    assert all(PORTS_FIRST <= chosen[name] < PORTS_LAST for name in ("nats", "temporal"))
    second = Ports(StateDirectory(state.path))
    assert {name: second.of(name, free_port()) for name in chosen} == chosen


def test_a_required_port_replaces_the_remembered_one(state: StateDirectory) -> None:
    remembered, required = Ports(state).of("api"), free_port()
    assert Ports(state).of("api", required=required) == required != remembered
    assert Ports(state).of("api") == required


def test_a_wished_port_that_is_taken_gives_way(state: StateDirectory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        assert Ports(state).of("api", taken) != taken


def test_one_stack_at_a_time(state: StateDirectory) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state.path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StackProblem, match=rf"pid {holder.pid}\b"), state.locked():
            pass
    finally:
        holder.kill()
        holder.communicate()
    # The kernel gives the lock back, however its holder ended; the pid it left in the file is no obstacle.
    with state.locked():
        assert (state.path / "stack.lock").read_text() == f"{os.getpid()}\n"


def test_starting_over_deletes_a_stack_and_nothing_else(state: StateDirectory, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (state.path / "link").symlink_to(outside)
    (state.agent("n") / "journal").mkdir(parents=True)
    Ports(state).of("api")
    state.start_over()
    assert list(state.path.iterdir()) == []
    assert (outside / "kept").read_text() == "kept"

    with pytest.raises(StackProblem, match="not a stack's"):
        StateDirectory(outside).start_over()
    assert (outside / "kept").read_text() == "kept"
    StateDirectory(tmp_path / "missing").start_over()


def test_secrets_are_closed_to_others(state: StateDirectory) -> None:
    state.secrets.chmod(0o755)
    state.prepare()
    write_secret(state.secrets / "key", "secret\n")
    assert stat.S_IMODE(state.secrets.stat().st_mode) == 0o700
    assert stat.S_IMODE((state.secrets / "key").stat().st_mode) == 0o600
    assert read_secret(state.secrets / "key") == "secret"
    assert read_secret(state.secrets / "none") is None


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"'])
def test_a_damaged_file_is_named(state: StateDirectory, content: str) -> None:
    for name in ("state.json", "endpoints.json", "processes.json"):
        (state.path / name).write_text(content)
    for read in (lambda: Ports(state), lambda: read_stack(state.path), lambda: Records(state)):
        with pytest.raises(StackProblem, match=r"\.json is damaged .* --fresh"):
            read()


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackProblem, match="cannot use"):
        StateDirectory(tmp_path / "file" / "var").prepare()
    with pytest.raises(StackProblem, match="cannot use"), StateDirectory(tmp_path / "file" / "var").locked():
        pass


def test_a_directory_without_a_stack_has_no_addresses(tmp_path: Path) -> None:
    known = read_stack(tmp_path / "nothing")
    assert (known.api_url, known.admin_key, known.database_url) == (None, None, None)


def test_leftovers_end_and_a_stranger_with_their_pid_does_not(state: StateDirectory) -> None:
    left, stranger = (subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2))
    try:
        records = Records(state)
        records.add(record_of("left", left.pid, signal.SIGTERM))
        born = psutil.Process(stranger.pid).create_time()
        records.add(Record("stranger", stranger.pid, born - 60, ["sleep"], int(signal.SIGTERM)))
        records.add(Record("gone", 2**22 - 1, 0.0, [], int(signal.SIGTERM)))
        assert Records(state).end_leftovers() == ["left"]
        assert still_run([psutil.Process(stranger.pid)]) != []
        assert left.wait(60) == -signal.SIGTERM
        assert json.loads((state.path / "processes.json").read_text()) == {"processes": []}
    finally:
        for process in (left, stranger):
            process.kill()
            process.wait()
