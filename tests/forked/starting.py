"""`Process`: a `subprocess.Popen` that forks processes of ours from one that has imported their code already.

`python -m orchestrator` takes more than a second of a processor for imports, and the tests start hundreds of such
processes. A forked process runs the same `__main__` with the same arguments, environment, directory and streams, and
is a child of the test's process like any other: its pid, signals and exit status are its own. Every other command, and every
command that asks for what a fork cannot give, is started as it is.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.forked.__main__ import LENGTH_BYTES, PID_BYTES

ROOT = Path(__file__).parents[2]
MODULES = {"orchestrator", "worker", "outbox_relay", "node_agent", "berth.cli"}
LAUNCHERS = {"tests.testbuild", "tests.dying", "tests.drivers.agent_host"}
PLAIN = {
    "executable": None, "preexec_fn": None, "pass_fds": (), "shell": False, "gid": None, "gids": None, "uid": None,
    "umask": -1, "process_group": -1,
}  # fmt: skip
"""Arguments of `Popen` whose other values a fork does not know."""

READ_AT_START = ("PYTHONPATH", "LD_PRELOAD")
"""Variables that a process reads when it starts, so a fork cannot have others."""

CommandLine = subprocess.Popen
"""What starts every command as it is."""

START = subprocess.Popen._execute_child  # type: ignore[attr-defined]
PARAMETERS = inspect.signature(START)
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
PR_SET_CHILD_SUBREAPER = 36


class Process(CommandLine[Any]):
    """As `subprocess.Popen`, sooner for processes of ours."""

    def _execute_child(self, *given: Any) -> None:
        wanted = PARAMETERS.bind(self, *given).arguments
        module = _module_of(wanted["args"])
        environment = dict(os.environ if wanted["env"] is None else wanted["env"])
        plain = all(wanted.get(name, value) == value for name, value in PLAIN.items())
        inherits = all(environment.get(name) == os.environ.get(name) for name in READ_AT_START)
        if module is None or not plain or not inherits:
            START(self, *given)
            return
        request = {
            "module": wanted["args"][2], "arguments": wanted["args"][3:], "environment": environment,
            "directory": os.fspath(wanted["cwd"] or Path.cwd()), "own_session": wanted["start_new_session"],
        }  # fmt: skip
        streams = [wanted["p2cread"], wanted["c2pwrite"], wanted["errwrite"]]
        given_or_inherited = [number if stream == -1 else stream for number, stream in enumerate(streams)]
        self.pid = _forked(module, request, environment, given_or_inherited)
        self._child_created = True
        self._close_pipe_fds(*(wanted[name] for name in PIPES))  # type: ignore[attr-defined]


def _module_of(command: object) -> str | None:
    """Which module of ours a command line runs, itself or through a launcher; None for every other command."""
    match command:
        case [sys.executable, "-m", str(module), *_] if module in MODULES:
            return module
        case [sys.executable, "-m", launcher, str(module), *_] if launcher in LAUNCHERS and module in MODULES:
            return module
    return None


class _Server:
    """A process that has imported one module, and forks."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = CommandLine(
                [sys.executable, "-m", "tests.forked", module, str(theirs.fileno())], env=environment,
                cwd=ROOT, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip

    def fork(self, request: Mapping[str, object], streams: Sequence[int]) -> int:
        """The pid of a new child of this process. Raises OSError if it could not begin."""
        body = json.dumps(request).encode()
        _adopt_orphans(True)
        try:
            socket.send_fds(self._socket, [len(body).to_bytes(LENGTH_BYTES)], streams)
            self._socket.sendall(body)
            pid = int.from_bytes(self._socket.recv(PID_BYTES, socket.MSG_WAITALL))
        finally:
            _adopt_orphans(False)
        if pid == 0:
            raise OSError(f"{request['module']} could not be forked; see the output of the tests")
        return pid

    def end(self) -> None:
        """Return when the server has ended; what it has forked is left running."""
        self._socket.close()
        self._process.wait()


def _adopt_orphans(adopt: bool) -> None:
    """Whether a process whose parent ended becomes a child of this process, if it descends from it."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


_servers: dict[tuple[str, frozenset[tuple[str, str]]], _Server] = {}
_forking = threading.Lock()


def _forked(module: str, request: Mapping[str, object], environment: Mapping[str, str], streams: Sequence[int]) -> int:
    """The pid of a fork by the server of that module, whose interpreter has the same settings."""
    interpreter = {name: value for name, value in environment.items() if name.startswith("PYTHON")}
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    key = (module, frozenset(interpreter.items()))
    with _forking:
        if key not in _servers:
            _servers[key] = _Server(module, {**others, **interpreter})
        return _servers[key].fork(request, streams)


@contextmanager
def forking() -> Iterator[None]:
    """Within, `subprocess.Popen` is `Process`, where the system can do that."""
    if sys.platform != "linux":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Process)
        try:
            yield
        finally:
            while _servers:
                _servers.popitem()[1].end()
