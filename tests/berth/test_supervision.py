"""The supervisor of the local stack: restart pauses, the window of deaths, giving up, and lost data."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.local.servers import LocalPostgres, ServerProblem, free_port, new_password
from berth.local.supervision import Change, RestartPolicy, SupervisedServer, Supervisor, Watched
from tests.support.waiting import wait_for


class Program:
    """A real process with a name; `startable` false: it cannot be started now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.startable = True
        self.ready = True
        self.blocked: str | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        if not self.startable:
            raise ServerProblem("its port is busy")
        self._process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    def how_it_ended(self) -> str | None:
        if self._process is None:
            return "does not run"
        status = self._process.poll()
        return None if status is None else f"ended with {status}; last log lines: none"

    def why_lost(self) -> str | None:
        return None

    def answers(self) -> bool:
        return self.ready

    def why_blocked(self) -> str | None:
        return self.blocked

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program("relay")
    made.start()
    yield made
    made.kill()


def supervise(program: Program, policy: RestartPolicy) -> tuple[Supervisor, Clock, list[tuple[Change, int]]]:
    """A supervisor of one program, its clock, and the changes that it reports."""
    told: list[tuple[Change, int]] = []

    def changed(watched: Watched, change: Change) -> None:
        told.append((change, watched.restarts))

    clock = Clock()
    return Supervisor([program], policy, changed, clock), clock, told


def test_a_dead_part_is_started_after_a_pause_that_grows(program: Program) -> None:
    supervisor, clock, told = supervise(program, RestartPolicy())
    for restarts, pause in enumerate((1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0), 1):
        program.kill()
        assert supervisor.look() is None
        clock.seconds += pause - 0.01
        assert supervisor.look() is None
        assert program.how_it_ended() is not None, "too early"
        clock.seconds += 0.02
        assert supervisor.look() is None
        assert program.how_it_ended() is None
        assert supervisor.look() is None
        assert told[-3:] == [("restarting", restarts - 1), ("starting", restarts), ("ready", restarts)]
    program.kill()
    assert supervisor.look() == "relay died 8 times within 300 s; the last time it ended with -9; last log lines: none"
    assert told[-1][0] == "failed"


def test_deaths_far_apart_never_end_it(program: Program) -> None:
    supervisor, clock, _ = supervise(program, RestartPolicy(deaths_max=2))
    for _ in range(5):
        clock.seconds += 301
        program.kill()
        assert supervisor.look() is None
        clock.seconds += 1
        assert supervisor.look() is None
        assert program.how_it_ended() is None, "it is back after the shortest pause"


def test_with_one_death_allowed_the_first_gives_up(program: Program) -> None:
    supervisor, _, _ = supervise(program, RestartPolicy(deaths_max=1))
    assert supervisor.look() is None
    program.kill()
    assert supervisor.look() == "relay ended with -9; last log lines: none"


def test_a_part_that_cannot_be_started_or_is_never_ready_counts_as_dead(program: Program) -> None:
    supervisor, clock, _ = supervise(program, RestartPolicy(deaths_max=3))
    program.kill()
    assert supervisor.look() is None
    program.startable = False
    clock.seconds += 1
    assert supervisor.look() is None
    program.startable, program.ready = True, False
    clock.seconds += 2
    assert supervisor.look() is None
    assert program.how_it_ended() is None
    clock.seconds += 61
    given_up = supervisor.look()
    assert given_up == "relay died 3 times within 300 s; the last time it was not ready within 60 s"
    assert program.how_it_ended() is not None


def test_a_part_that_waits_for_an_operator_is_not_ended(program: Program) -> None:
    supervisor, clock, told = supervise(program, RestartPolicy(deaths_max=3))
    program.kill()
    assert supervisor.look() is None
    program.ready, program.blocked = False, "publishing is stopped"
    clock.seconds += 2
    for _ in range(5):
        assert supervisor.look() is None
        clock.seconds += 59
    assert told == [("restarting", 0), ("starting", 1), ("blocked", 1)]
    program.blocked = None
    assert supervisor.look() is None, "it has time to be ready from now on"
    program.blocked = "publishing is stopped again"
    assert supervisor.look() is None
    program.ready, program.blocked = True, None
    assert supervisor.look() is None
    assert told[-1] == ("ready", 1)
    program.ready = False
    clock.seconds += 100
    assert supervisor.look() is None, "it was ready, so nothing is expected of it"
    assert program.how_it_ended() is None


def test_a_part_that_was_blocked_at_its_start_is_reported_when_it_is_ready(program: Program) -> None:
    supervisor, _, told = supervise(program, RestartPolicy(deaths_max=3))
    program.ready, program.blocked = False, "publishing is stopped"
    supervisor.expect(program.name)
    assert supervisor.look() is None
    assert told == []
    program.ready = True
    assert supervisor.look() is None
    assert told == [("ready", 0)]


@given(deaths=st.integers(1, 1_000))
def test_pauses_are_bounded(deaths: int) -> None:
    policy = RestartPolicy()
    assert policy.pause_first_seconds <= policy.pause_seconds(deaths) <= policy.pause_seconds_max
    assert policy.pause_seconds(deaths) <= policy.pause_seconds(deaths + 1)


def test_a_killed_postgres_is_back_with_its_data_but_an_empty_one_never_takes_its_place(server_directory: Path) -> None:
    server = LocalPostgres(server_directory / "supervised" / "postgres", free_port(), new_password(), {"fsync": "off"})
    server.directory.parent.mkdir()
    server.start()
    told: list[Change] = []
    supervisor = Supervisor(
        [SupervisedServer(server)], RestartPolicy(pause_first_seconds=0.0), lambda _, change: told.append(change)
    )
    try:
        assert server.process is not None
        server.process.kill()
        wait_for(lambda: supervisor.look() is None and "ready" in told, "PostgreSQL to be back")
        assert server.process.poll() is None
        server.process.kill()
        (server.directory / "global" / "pg_control").rename(server_directory / "pg_control")
        server.process.wait()
        given_up = supervisor.look()
        assert given_up is not None
        assert "postgres was ended by SIGKILL" in given_up
        assert "cannot be started again" in given_up
        assert "pg_control is gone" in given_up
    finally:
        server.stop()
