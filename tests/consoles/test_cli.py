"""`berth alloc console`: the log, and a raw terminal that is as before in every ending."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from node_agent.wire.console import DATA, END
from tests.consoles.stage import AgentLink, ConsoleStage
from tests.support.waiting import wait_for

SECONDS_MAX = 60.0


def environment(stage: ConsoleStage, key: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    return {**inherited, "BERTH_API_URL": stage.api, "BERTH_API_KEY": key, "COLUMNS": "200"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "berth.cli", "alloc", "console", *arguments]


def agent_of(stage: ConsoleStage, allocation: uuid.UUID) -> AgentLink:
    """The agent of the next session of an allocation."""

    def waiting() -> list[Any]:
        return [one["id"] for one in stage.sessions(allocation) if one["ended_at"] is None and one["task_id"] is None]

    wait_for(lambda: waiting() != [], "the session")
    return stage.joined(waiting()[0])


class Person:
    """A terminal, and `berth alloc console --attach` in it."""

    def __init__(self, stage: ConsoleStage, allocation: uuid.UUID, role: str = "member") -> None:
        self.ours, self.theirs = pty.openpty()
        self.before = termios.tcgetattr(self.theirs)
        self.process = subprocess.Popen(
            command(str(allocation), "--attach"), env=environment(stage, stage.key(role)),
            stdin=self.theirs, stdout=self.theirs, stderr=self.theirs, start_new_session=True,
        )  # fmt: skip
        self.seen = b""

    def sees(self, wanted: bytes) -> None:
        while wanted not in self.seen:
            assert select.select([self.ours], [], [], SECONDS_MAX)[0], self.seen
            self.seen += os.read(self.ours, 65_536)

    def types(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.theirs)[3] & (termios.ECHO | termios.ICANON | termios.ISIG)

    def ends(self) -> int:
        status = self.process.wait(SECONDS_MAX)
        assert termios.tcgetattr(self.theirs) == self.before, "the terminal is as before"
        return status


@contextmanager
def person_at(stage: ConsoleStage, allocation: uuid.UUID) -> Iterator[tuple[Person, AgentLink]]:
    """Attached."""
    person = Person(stage, allocation)
    try:
        agent = agent_of(stage, allocation)
        person.sees(b"Ctrl-] leaves")
        yield person, agent
    finally:
        person.process.kill()
        os.close(person.ours)
        os.close(person.theirs)


def test_keys_and_output_pass_as_they_are_and_ctrl_bracket_leaves(stage: ConsoleStage) -> None:
    with person_at(stage, stage.active()) as (person, agent):
        assert person.is_raw()
        agent.send(DATA, b"\x1b[31mlogin:\x00")
        person.sees(b"\x1b[31mlogin:\x00")
        person.types(b"root\r\x03\x04")
        agent.received_until(b"root\r\x03\x04")
        person.types(b"last\x1dnot sent")
        agent.received_until(b"last")
        person.sees(b"left by Ctrl-]")
        assert person.ends() == 0
        rest = agent.receive()
        assert rest is None or rest[0] == END


def test_the_terminal_is_restored_when_the_guest_ends(stage: ConsoleStage) -> None:
    with person_at(stage, stage.active()) as (person, agent):
        agent.end("guest_ended")
        person.sees(b"the guest stopped")
        assert person.ends() == 1


def test_the_terminal_is_restored_when_the_link_is_lost(stage: ConsoleStage) -> None:
    with person_at(stage, stage.active()) as (person, agent):
        agent.connection.close()
        person.sees(b"attach again")
        assert person.ends() == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_restored_after_a_signal(stage: ConsoleStage, number: signal.Signals) -> None:
    with person_at(stage, stage.active()) as (person, _):
        person.process.send_signal(number)
        assert person.ends() == 128 + number


def test_a_refusal_leaves_the_terminal_alone(stage: ConsoleStage) -> None:
    person = Person(stage, stage.active(), "viewer")
    person.sees(b"needs the role admin or member")
    assert person.ends() == 1


def test_standard_input_that_is_no_terminal_needs_its_option(stage: ConsoleStage) -> None:
    allocation = stage.active()
    told = environment(stage, stage.key())
    refused = subprocess.run(
        command(str(allocation), "--attach"),
        env=told,
        input=b"x",
        capture_output=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert (refused.returncode, b"--stdin" in refused.stderr) == (2, True)
    for wrong in (["--stdin"], ["--attach", "--offset", "1"], ["--attach", "--bytes", "1"]):
        found = subprocess.run(
            command(str(allocation), *wrong), env=told, capture_output=True, check=False, timeout=SECONDS_MAX,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert found.returncode == 2, found.stderr
    assert stage.sessions(allocation) == []


def test_a_pipe_is_sent_and_the_output_returned(stage: ConsoleStage) -> None:
    allocation = stage.active()
    running = subprocess.Popen(
        command(str(allocation), "--attach", "--stdin"), env=environment(stage, stage.key()),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert running.stdin is not None
    running.stdin.write(b"x" * 5_000 + b"\x1d!")
    running.stdin.close()
    running.stdin = None
    agent = agent_of(stage, allocation)
    assert agent.received_until(b"!") == b"x" * 5_000 + b"\x1d!", "no key of it is an escape"
    agent.send(DATA, b"\xff answer")
    out, errors = running.communicate(timeout=SECONDS_MAX)
    assert (running.returncode, out) == (0, b"\xff answer"), errors


def test_the_log_goes_to_a_pipe_as_it_is_and_to_a_terminal_made_visible(stage: ConsoleStage) -> None:
    allocation = stage.active()

    def played() -> None:
        agent = agent_of(stage, allocation)
        agent.send(DATA, b"\x1b]0;title\x07boot\r\nnext \xff")
        agent.send(END, b'{"reason": "log_sent", "offset": 7}')

    told = environment(stage, stage.key())
    playing = threading.Thread(target=played)
    playing.start()
    piped = subprocess.run(command(str(allocation)), env=told, capture_output=True, check=False, timeout=SECONDS_MAX)
    playing.join()
    assert (piped.returncode, piped.stdout) == (0, b"\x1b]0;title\x07boot\r\nnext \xff"), piped.stderr
    playing = threading.Thread(target=played)
    playing.start()
    ours, theirs = pty.openpty()
    shown = subprocess.run(command(str(allocation)), env=told, stdout=theirs, check=False, timeout=SECONDS_MAX)
    playing.join()
    text = os.read(ours, 65_536)
    assert shown.returncode == 0
    assert b"\x1b" not in text
    assert b"\\x1b]0;title\\x07boot\r\nnext" in text
