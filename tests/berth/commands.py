"""`berth` as a separate process, as a person or a program runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from berth.local.servers import free_port
from migrations.roles import Role
from tests.databases import as_role
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for

OWNERS = (("migrate",), ("up",), ("demo",))
"""Commands that make or change the schema."""


def environment(**settings: str) -> dict[str, str]:
    """This process's environment with no settings of Berth but these; wide enough that nothing is wrapped."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    return {**inherited, "COLUMNS": "200", "TERM": "dumb", **settings}


def as_operator(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with a test's database as the operators' role, as in a deployment, instead of the superuser."""
    name = "BERTH_DATABASE_URL"
    return {**settings, name: as_role(settings[name], Role.OPERATOR)} if name in settings else dict(settings)


def berth(*arguments: str, python: str = sys.executable, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [python, "-m", "berth.cli", *arguments],
        env=environment(**(settings if arguments[:1] in OWNERS else as_operator(settings))),
        capture_output=True, text=True, timeout=WAIT_SECONDS_MAX,
    )  # fmt: skip


def assert_one_sentence(done: subprocess.CompletedProcess[str], status: int, *words: str) -> str:
    """The sentence: it ended with that status and said why in one line on stderr that holds the words, without a traceback."""
    said = done.stderr.strip()
    assert done.returncode == status, (done.returncode, said, done.stdout)
    assert len(said.splitlines()) == 1, said
    assert said.startswith("berth: "), said
    for word in words:
        assert word in said, (word, said)
    return said


class UpProcess:
    """`berth up --output json` with one node."""

    def __init__(self, directory: Path, *options: str, agents: int = 1) -> None:
        self.directory = directory
        # Its own port at first, and then the remembered one: others on this machine may want the usual one.
        port = [] if (directory / "state.json").exists() else ["--port", str(free_port())]
        self._out = directory.with_name(f"{directory.name}-{time.monotonic_ns()}.out")
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "berth.cli", "up", "--state-dir", str(directory), "--agents", str(agents),
                 "--output", "json", *port, *options],
                env=environment(), stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def said(self) -> str:
        """All output so far."""
        return self._out.read_text()

    def parts(self) -> list[tuple[str, str]]:
        """Names and states, in the order of their lines."""
        lines = [line for line in self.said.splitlines() if line.startswith('{"name"')]
        return [(entry["name"], entry["state"]) for entry in map(json.loads, lines)]

    def error(self) -> dict[str, Any]:
        """What it said when it ended."""
        return dict(json.loads(self.said[self.said.index('{\n  "error"') :])["error"])

    def wait_up(self) -> None:
        """Return when the fleet is online."""
        wait_for(
            lambda: self.process.poll() is not None or '{"name": "fleet", "state": "ready"' in self.said, "the fleet"
        )
        assert self.process.poll() is None, self.said

    def children(self) -> dict[str, psutil.Process]:
        """The recorded processes that run."""
        found = {}
        for record in json.loads((self.directory / "processes.json").read_text())["processes"]:
            if psutil.pid_exists(record["pid"]):
                found[record["name"]] = psutil.Process(record["pid"])
        return found

    def families(self) -> list[psutil.Process]:
        """The recorded processes and all that they started."""
        members = []
        for process in self.children().values():
            members += [process, *process.children(recursive=True)]
        return members

    def end(self, with_signal: signal.Signals) -> int:
        """Send it the signal and answer its exit status."""
        self.process.send_signal(with_signal)
        return self.process.wait(WAIT_SECONDS_MAX)


def still_run(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended. A zombie has."""
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
